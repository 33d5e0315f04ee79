"""Show the runs in the store: what is done, at work, interrupted, failed or broken.

Sharpness and test error are the last that were logged.

Examples:

    flattest status               every run
    flattest status 'fig4*'       those of some experiments
    flattest status --json        for a program; a running run's progress is in it
    flattest status --check       every file is read and held against its digest; exit code 1 if
                                  any has rotted
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import tyro
from rich.console import RenderableType
from rich.markup import escape
from rich.segment import Segment

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
from flattest.errors import visible
from flattest.experiments.registry import experiments
from flattest.runs.folder import StoredRun
from flattest.runs.results import find_runs
from flattest.runs.store import Store

MANY = 500  # runs that are listed in colour
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


Check = Annotated[
    bool, tyro.conf.arg(help="Read every file of every run, and say which have rotted.")
]


def command(
    patterns: Patterns = (),
    check: Check = False,
    folder: StoreFolder = DEFAULT_STORE,
    as_json: Json = False,
) -> int:
    store = Store.open(folder)
    runs = find_runs(store, patterns) if patterns else store.runs()
    if not check:
        some = (
            "`flattest show KEY` tells all of a run."
            if runs
            else "`flattest run fig4b` makes some."
        )
        output(as_json, runs, table(runs), then=some)
        return 0
    experiments()  # a task of a kind that is known has its key computed again
    wanted = {run.folder for run in runs}
    runs = [run for run in store.check() if run.folder in wanted]
    output(as_json, runs, table(runs), verdict(runs))
    return 1 if any(run.status == "broken" for run in runs) else 0


def verdict(runs: list[StoredRun]) -> str:
    """What a check has found, and what to do about it."""
    broken = [run for run in runs if run.status == "broken"]
    if not broken:
        if len(runs) == 1:
            return "The run is as it was written."
        return f"All {len(runs)} runs are as they were written."
    name = broken[0].label.partition(":")[0]
    if len(broken) == 1:
        which = f"1 of {len(runs)} runs" if len(runs) > 1 else "The run"
        return escape(f"{which} is broken; `flattest run {name}` does it again.")
    return escape(
        f"{len(broken)} of {len(runs)} runs are broken; `flattest run` with their experiments, "
        f"as in `flattest run {name}`, does them again and keeps the others."
    )


HEAD = ("run", "experiment", "seed", "status", "done", "time", "sharpness", "test error", "")


def table(runs: list[StoredRun]) -> RenderableType:
    """A line per run; of very many in plain text, which is made a hundred times as fast."""
    counts = Counter(run.status for run in runs)
    caption = ", ".join(f"{n} {status}" for status, n in counts.items()) or "no runs"
    if len(runs) > MANY:
        return Plain(visible(f"{plain([HEAD, *map(cells, runs)])}\n{caption}\n"))
    keys = name_column("run", (run.key[:10] for run in runs))
    return listing((keys, *HEAD[1:]), map(coloured, runs), caption)


class Plain(NamedTuple):
    """Text that is printed as it is."""

    text: str

    def __rich_console__(self, *_: object) -> Iterator[Segment]:
        yield Segment(self.text)


def cells(run: StoredRun) -> tuple[str, ...]:
    return (
        run.key[:10],
        run.label,
        str(run.seed),
        run.status,
        f"{100 * run.progress:.0f} %",
        duration(run.seconds),
        *("" if v is None else f"{v:.4g}" for v in (run.sharpness, run.test_error)),
        run.sentence,
    )


def coloured(run: StoredRun) -> list[str]:
    found = [escape(cell) for cell in cells(run)]
    # A status that is not ours was written by another version.
    found[3] = f"[{COLOURS.get(run.status, 'red')}]{found[3]}[/]"
    return found


def plain(rows: Sequence[Sequence[str]]) -> str:
    """Rows as lines, columns one below the other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)
