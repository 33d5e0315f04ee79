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
    console,
    duration,
    listing,
    name_column,
    print_json,
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
) -> int:
    store = Store.open(folder)
    runs = find_runs(store, patterns) if patterns else store.runs()
    if as_json:
        print_json(runs)
    else:
        console().print(table(runs))
    return 0


def table(runs: list[StoredRun]) -> Table:
    keys = name_column("run", (run.key[:10] for run in runs))
    grid = listing(keys, "experiment", "seed", "status", "done", "time", "")
    for run in runs:
        # A status that is not ours was written by another version.
        status = f"[{COLOURS.get(run.status, 'red')}]{escape(run.status)}[/]"
        done = f"{100 * run.progress:.0f} %"
        row = (run.key[:10], escape(run.label), str(run.seed), status, done, duration(run.seconds))
        grid.add_row(*row, escape(run.sentence))
    counts = Counter(run.status for run in runs)
    grid.caption = ", ".join(f"{n} {status}" for status, n in counts.items()) or "no runs"
    return grid
