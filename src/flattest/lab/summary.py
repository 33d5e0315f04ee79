"""What the runs of an experiment came to, small enough to commit: store → JSON and Markdown."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec
import numpy as np

from flattest.evidence import Verdict
from flattest.experiments.expectations import tail
from flattest.experiments.experiment import Experiment, Task, VariantName
from flattest.runs.results import assess, stored
from flattest.runs.store import Store, StoredRun
from flattest.training.run import Run

# What is summarized of a series of training that has it: the median of its last tenth.
MEASURES = ("train_loss", "sharpness", "bound", "test_error", "test_loss")
TRAINING_COLUMNS = ("sharpness", "bound", "test_error", "test_loss")


class Spread(msgspec.Struct, frozen=True):
    """Median and range over seeds."""

    median: float
    low: float
    high: float


class Summary(msgspec.Struct, frozen=True):
    """One experiment at one scale. `seconds` is the time of one run, the median over seeds.

    `seeds` are those that have a result; `statuses` counts the broken runs too.
    `measured` is what the task names, None where a seed has no such number.
    """

    experiment: str
    figure: str
    statement: str
    notes: str
    variant: str
    seeds: int
    statuses: dict[str, int]
    seconds: float
    machine: str
    commit: str
    measured: dict[str, Spread | None]
    verdicts: tuple[Verdict, ...]

    @property
    def met(self) -> bool:
        return all(verdict.holds for verdict in self.verdicts)


def summarize(
    chosen: Iterable[Experiment], variant: VariantName, store: Store, seeds: int | None = None
) -> list[Summary]:
    """The experiments that have runs which are done."""
    return [s for e in chosen if (s := _summary(e, variant, store, seeds)) is not None]


def _summary(
    e: Experiment, variant: VariantName, store: Store, seeds: int | None
) -> Summary | None:
    runs = stored(e, variant, store, seeds)
    found = [run for run in runs if run.done]
    if not found:
        return None
    results = [run.run() for run in found]
    made = found[0].provenance()
    return Summary(
        experiment=e.name,
        figure=e.figure,
        statement=e.statement,
        notes=e.notes,
        variant=variant,
        seeds=len(found),
        statuses=_statuses(runs),
        seconds=float(np.median([run.seconds for run in found])),
        machine="" if made is None else f"{made.machine}, {made.cores} cores",
        commit="" if made is None else made.commit,
        measured=_measured(e.variant(variant).task, results),
        verdicts=assess(e, variant, store, seeds).verdicts,
    )


def _statuses(runs: Sequence[StoredRun]) -> dict[str, int]:
    counts = Counter(run.status for run in runs if run.done or run.status == "broken")
    return dict(sorted(counts.items()))


def _measured(task: Task, results: Sequence[Run]) -> dict[str, Spread | None]:
    rows = [task.measures(result.series) or _ends(result) for result in results]
    names = [name for name in rows[0] if all(name in row for row in rows)]
    return {name: _spread([row[name] for row in rows]) for name in names}


def _ends(result: Run) -> dict[str, float]:
    return {name: tail(result[name]) for name in MEASURES if name in result.series}


def _spread(values: Sequence[float]) -> Spread | None:
    if not np.isfinite(values).all():
        return None
    return Spread(*map(float, (np.median(values), min(values), max(values))))


def markdown(summaries: Iterable[Summary]) -> str:
    """A row an experiment, what was measured and whether it is what was expected; a table for each
    kind of measures. A table of one experiment is turned on its side."""
    tables = groupby(summaries, key=_columns)
    return "\n".join(_table(columns, rows) for columns, rows in tables)


def _columns(s: Summary) -> tuple[str, ...]:
    return TRAINING_COLUMNS if set(s.measured) <= set(MEASURES) else tuple(s.measured)


def _table(columns: Sequence[str], summaries: Iterable[Summary]) -> str:
    told = [name.replace("_", " ") for name in columns]
    names = ["panel", "statement", "seeds", *told, "time a run", "as expected"]
    table = [names, *(_row(s, columns) for s in summaries)]
    if len(table) == 2:
        table = [list(line) for line in zip(*table, strict=True)]
    rule = "| --- " * len(table[0]) + "|"
    return "\n".join([_line(table[0]), rule, *map(_line, table[1:])]) + "\n"


def _row(s: Summary, columns: Sequence[str]) -> list[str]:
    cells = [_cell(s.measured.get(name)) for name in columns]
    trouble = ", ".join(f"{n} {status}" for status, n in s.statuses.items() if status != "finished")
    seeds = f"{s.seeds} ({trouble})" if trouble else f"{s.seeds}"
    panel = s.experiment.partition("/")[2]
    return [panel, s.statement, seeds, *cells, f"{s.seconds:.0f} s", _verdict(s)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _verdict(s: Summary) -> str:
    if not s.verdicts:
        return "nothing is expected"
    return "yes" if s.met else "no: " + " ".join(v.sentence for v in s.verdicts if not v.holds)


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    if spread.low == spread.high:
        return f"{spread.median:.4g}"
    return f"{spread.median:.4g} [{spread.low:.4g}, {spread.high:.4g}]"
