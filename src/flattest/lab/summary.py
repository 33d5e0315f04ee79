"""What the runs of an experiment came to, small enough to commit: store → JSON and Markdown."""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np

from flattest.errors import FlattestError
from flattest.evidence import Verdict
from flattest.experiments.expectations import Expectation, tail
from flattest.experiments.experiment import Experiment, Seeds, Task, VariantName
from flattest.files import read_json, unreadable
from flattest.runs.results import assess, stored
from flattest.runs.store import Store, read_spec
from flattest.training.run import Run

# The columns of training: of each series that a run has, the median of its last tenth.
TRAINING_COLUMNS = ("train_loss", "sharpness", "bound", "test_error", "test_loss")
# Experiments side by side, each with its column, that a page has room for.
TURNED_AT_MOST = 3


class Spread(msgspec.Struct, frozen=True):
    """Median and range over seeds; the mean, too, in what was summarized since it is kept."""

    median: float
    low: float
    high: float
    mean: float | None = None


class Summary(msgspec.Struct, frozen=True):
    """One experiment at one scale. `seconds` is the time of one run, the median over seeds.

    `seeds` are those that have a result; `statuses` counts the broken runs too. `commit` and
    `engine` (its version) are those that made the runs. `columns` are those that the task names,
    None where a seed has no such number.
    """

    experiment: str
    figure: str
    statement: str
    notes: str
    variant: VariantName
    seeds: int
    statuses: dict[str, int]
    seconds: float
    machine: str
    commit: str
    engine: int
    columns: dict[str, Spread | None]
    verdicts: tuple[Verdict, ...]

    @property
    def met(self) -> bool:
        return all(verdict.holds for verdict in self.verdicts)

    def column(self, name: str) -> Spread:
        """A column that every seed has a number in."""
        found = self.columns.get(name)
        if found is None:
            raise FlattestError(f"Not every {self.variant} run of {self.experiment} has a {name}.")
        return found

    def verdict(self, expected: Expectation) -> Verdict:
        """The verdict on the quantity of this expectation, whatever its threshold was."""
        for found in self.verdicts:
            if found.statement == expected.quantity:
                return msgspec.structs.replace(found, seeds=self.seeds)
        raise FlattestError(
            f"The summary of {self.experiment} does not have {expected.quantity}; "
            "it was made before that was expected."
        )


def summarize(
    chosen: Iterable[Experiment], variant: VariantName, store: Store, seeds: Seeds = None
) -> list[Summary]:
    """The experiments that have runs which are done."""
    return [s for e in chosen if (s := _summary(e, variant, store, seeds)) is not None]


def _summary(e: Experiment, variant: VariantName, store: Store, seeds: Seeds) -> Summary | None:
    runs = stored(e, variant, store, seeds)
    found = [run for run in runs if run.done]
    if not found:
        return None
    made = found[0].provenance()
    statuses = Counter(run.status for run in runs if run.done or run.status == "broken")
    return Summary(
        experiment=e.name,
        figure=e.figure,
        statement=e.statement,
        notes=e.notes,
        variant=variant,
        seeds=len(found),
        statuses=dict(sorted(statuses.items())),
        seconds=float(np.median([run.seconds for run in found])),
        machine="" if made is None else f"{made.machine}, {made.cores} cores",
        commit="" if made is None else made.commit,
        engine=read_spec(found[0].folder).engine,
        columns=_columns(e.variant(variant).task, [run.run() for run in found]),
        verdicts=assess(e, variant, store, seeds).verdicts,
    )


def _columns(task: Task, runs: Sequence[Run]) -> dict[str, Spread | None]:
    rows = [
        task.columns(run.series)
        or {name: tail(run[name]) for name in TRAINING_COLUMNS if name in run.series}
        for run in runs
    ]
    names = [name for name in rows[0] if all(name in row for row in rows)]
    return {name: _spread([row[name] for row in rows]) for name in names}


def _spread(values: Sequence[float]) -> Spread | None:
    found = np.array([np.median(values), min(values), max(values), np.mean(values)], float)
    numbers = found.tolist()
    return Spread(*numbers) if np.isfinite(values).all() else None


@functools.cache
def read_summaries(path: Path) -> tuple[Summary, ...]:
    """The summaries in a file, as `flattest summary --json` prints them."""
    found = read_json(path)
    try:
        for verdict in (v for summary in found for v in summary["verdicts"]):
            # JSON has no infinity, the value of a seed that has no number to assess.
            worst = -math.inf if verdict["relation"] == "≥" else math.inf
            verdict["values"] = [worst if value is None else value for value in verdict["values"]]
            verdict["value"] = worst if verdict["value"] is None else verdict["value"]
        return msgspec.convert(found, tuple[Summary, ...])
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise unreadable(path, error) from error


def markdown(summaries: Iterable[Summary]) -> str:
    """A row per experiment: its columns, and whether it is what was expected; a table for each
    set of columns. A statement that all experiments of a table share stands above it; a table of
    few experiments is turned on its side, so that it fits on a page."""
    return "\n".join(_table(columns, rows) for columns, rows in groupby(summaries, key=_shown))


def _shown(s: Summary) -> tuple[str, ...]:
    return TRAINING_COLUMNS[1:] if set(s.columns) <= set(TRAINING_COLUMNS) else tuple(s.columns)


def _table(columns: Sequence[str], summaries: Iterable[Summary]) -> str:
    shown = list(summaries)
    names = [name.replace("_", " ") for name in columns]
    head = ["panel", "statement", "seeds", *names, "time per run", "as expected"]
    table = [head, *(_row(s, columns) for s in shown)]
    shared = len(shown) > 1 and len({s.statement for s in shown}) == 1
    if shared:
        table = [[*row[:1], *row[2:]] for row in table]
    if len(shown) <= TURNED_AT_MOST:
        table = [list(line) for line in zip(*table, strict=True)]
    rule = "| --- " * len(table[0]) + "|"
    lines = [_line(table[0]), rule, *map(_line, table[1:])]
    return "\n".join([f"*{shown[0].statement}*\n", *lines] if shared else lines) + "\n"


def _row(s: Summary, columns: Sequence[str]) -> list[str]:
    cells = [_cell(s.columns.get(name)) for name in columns]
    trouble = ", ".join(f"{n} {status}" for status, n in s.statuses.items() if status != "finished")
    seeds = f"{s.seeds} ({trouble})" if trouble else f"{s.seeds}"
    panel = s.experiment.partition("/")[2]
    return [panel, s.statement, seeds, *cells, f"{s.seconds:.0f} s", _expected(s)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _expected(s: Summary) -> str:
    if not s.verdicts:
        return "nothing is expected"
    return "yes" if s.met else "no: " + " ".join(v.sentence for v in s.verdicts if not v.holds)


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    if spread.low == spread.high:
        return f"{spread.median:.4g}"
    return f"{spread.median:.4g} [{spread.low:.4g}, {spread.high:.4g}]"
