"""Show the runs in the store: what is done, at work, interrupted, failed or broken.

Examples:

    flattest status               every run
    flattest status 'fig4*'       those of some experiments
    flattest status --json        for a program; a running run's progress is in it
"""

from collections import Counter

from rich.markup import escape
from rich.table import Table

from flattest.cli._options import (
    DEFAULT_STORE,
    Json,
    Patterns,
    StoreFolder,
    duration,
    listing,
    name_column,
    output,
)
from flattest.runs.folder import StoredRun
from flattest.runs.results import find_runs
from flattest.runs.store import Store

COLOURS = {
    "finished": "green",
    "running": "cyan",
    "pending": "dim",
    "interrupted": "yellow",
    "diverged": "magenta",
    "stagnated": "magenta",
    "failed": "red",
    "broken": "red",
}


def command(
    patterns: Patterns = (), folder: StoreFolder = DEFAULT_STORE, as_json: Json = False
) -> None:
    store = Store.open(folder)
    runs = find_runs(store, patterns) if patterns else store.runs()
    output(as_json, runs, table(runs))


def table(runs: list[StoredRun]) -> Table:
    keys = name_column("run", (run.key[:10] for run in runs))
    rows = (
        (
            run.key[:10],
            escape(run.label),
            str(run.seed),
            # A status that is not ours was written by another version.
            f"[{COLOURS.get(run.status, 'red')}]{escape(run.status)}[/]",
            f"{100 * run.progress:.0f} %",
            duration(run.seconds),
            escape(run.sentence),
        )
        for run in runs
    )
    counts = Counter(run.status for run in runs)
    caption = ", ".join(f"{n} {status}" for status, n in counts.items()) or "no runs"
    return listing((keys, "experiment", "seed", "status", "done", "time", ""), rows, caption)
