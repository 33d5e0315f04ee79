"""What the runs of an experiment came to, small enough to commit: store → JSON and Markdown."""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from flattest import runner
from flattest.experiments import Experiment, VariantName
from flattest.experiments.expectations import Result, Verdict, tail
from flattest.store import Store

# What is summarized of a series that has it: the median of its last tenth.
MEASURES = ("train_loss", "sharpness", "bound", "test_error", "test_loss")


class Spread(msgspec.Struct, frozen=True):
    """Median and range over seeds."""

    median: float
    low: float
    high: float


class Summary(msgspec.Struct, frozen=True):
    """One experiment at one scale. `seconds` is the time of one run, the median over seeds."""

    experiment: str
    figure: str
    claim: str
    notes: str
    variant: str
    seeds: int
    statuses: dict[str, int]
    seconds: float
    machine: str
    commit: str
    measured: dict[str, Spread]
    verdicts: tuple[Verdict, ...]

    @property
    def met(self) -> bool:
        return all(verdict.met for verdict in self.verdicts)


def summarize(
    chosen: Iterable[Experiment], variant: VariantName, store: Store, seeds: int | None = None
) -> list[Summary]:
    """The experiments that have runs which are done."""
    return [s for e in chosen if (s := _summary(e, variant, store, seeds)) is not None]


def _summary(
    e: Experiment, variant: VariantName, store: Store, seeds: int | None
) -> Summary | None:
    found = [run for run in runner.stored(e, variant, store, seeds) if run.done]
    if not found:
        return None
    results = [runner.result(run) for run in found]
    made = found[0].provenance()
    return Summary(
        experiment=e.name,
        figure=e.figure,
        claim=e.claim,
        notes=e.notes,
        variant=variant,
        seeds=len(found),
        statuses={
            s: sum(r.status == s for r in results) for s in sorted({r.status for r in results})
        },
        seconds=float(np.median([run.seconds for run in found])),
        machine="" if made is None else f"{made.machine}, {made.cores} cores",
        commit="" if made is None else made.commit,
        measured=_measured(results),
        verdicts=runner.judge(e, variant, store, seeds).verdicts,
    )


def _measured(results: Sequence[Result]) -> dict[str, Spread]:
    common = set.intersection(*(set(result.series) for result in results))
    spreads = {}
    for name in MEASURES:
        if name in common:
            values = [tail(result[name]) for result in results]
            spreads[name] = Spread(*map(float, (np.median(values), min(values), max(values))))
    return spreads


def markdown(summaries: Iterable[Summary]) -> str:
    """A table, one row an experiment: what was measured and whether it is what was expected."""
    columns = "panel|claim|seeds|sharpness|bound|test error|test loss|time a run|as expected"
    head = [f"| {columns.replace('|', ' | ')} |", "| --- " * (columns.count("|") + 1) + "|"]
    return "\n".join([*head, *map(_row, summaries)]) + "\n"


def _row(s: Summary) -> str:
    cells = [
        _cell(s.measured.get(name)) for name in ("sharpness", "bound", "test_error", "test_loss")
    ]
    trouble = ", ".join(f"{n} {status}" for status, n in s.statuses.items() if status != "finished")
    seeds = f"{s.seeds} ({trouble})" if trouble else f"{s.seeds}"
    row = [
        s.experiment.partition("/")[2],
        s.claim,
        seeds,
        *cells,
        f"{s.seconds:.0f} s",
        _verdict(s),
    ]
    return f"| {' | '.join(row)} |"


def _verdict(s: Summary) -> str:
    if not s.verdicts:
        return "nothing is expected"
    return "yes" if s.met else "no: " + " ".join(v.sentence for v in s.verdicts if not v.met)


def _cell(spread: Spread | None) -> str:
    if spread is None or not np.isfinite(spread.median):
        return "–"
    if spread.low == spread.high:
        return f"{spread.median:.4g}"
    return f"{spread.median:.4g} [{spread.low:.4g}, {spread.high:.4g}]"
