"""Show the runs in the store: what is done, at work, interrupted, failed or broken.

Sharpness and test error are the last that were logged.

Examples:

    flattest status               every run
    flattest status 'fig4*'       those of some experiments
    flattest status --json        for a program; a running run's progress is in it
"""

from collections import Counter
from typing import Any

import msgspec
import numpy as np
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
from flattest.errors import FlattestError
from flattest.runs.folder import StoredRun
from flattest.runs.results import find_runs
from flattest.runs.store import Store

SHOWN = ("sharpness", "test_error")
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
    then = "`flattest show KEY` tells all of a run." if runs else "`flattest run fig4b` makes some."
    output(as_json, [as_data(run) for run in runs], table(runs), then=then)


def as_data(run: StoredRun) -> dict[str, Any]:
    return msgspec.structs.asdict(run) | dict(zip(SHOWN, last_logged(run), strict=True))


def last_logged(run: StoredRun) -> list[float | None]:
    """The last sharpness and test error of a run that logs them and can be read."""
    try:
        series = run.series() if run.status != "broken" else {}
    except FlattestError:
        series = {}
    found = [np.ravel(series.get(name, ())) for name in SHOWN]
    return [float(v[-1]) if v.size and np.isfinite(v[-1]) else None for v in found]


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
            *("" if number is None else f"{number:.4g}" for number in last_logged(run)),
            escape(run.sentence),
        )
        for run in runs
    )
    counts = Counter(run.status for run in runs)
    caption = ", ".join(f"{n} {status}" for status, n in counts.items()) or "no runs"
    head = (keys, "experiment", "seed", "status", "done", "time", "sharpness", "test error", "")
    return listing(head, rows, caption)
