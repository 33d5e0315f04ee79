"""What the page shows, read from a store into plain data."""

import math
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from flattest import runner
from flattest.errors import FlattestError
from flattest.experiments import VARIANTS, Experiment, VariantName, experiments
from flattest.experiments.table1 import ROWS, Row, roles
from flattest.judge import Answer, answer
from flattest.store import Store, StoredRun

# Series of a training run that the page draws, and numbers it keeps in all (so that the page
# stays below 8 MB however many runs the store has).
CURVES = ("epoch", "train_loss", "train_error", "test_loss", "test_error", "sharpness", "bound")
NUMBERS_AT_MOST = 1_200_000
POINTS_AT_LEAST = 40


class RunView(msgspec.Struct, frozen=True):
    """One run as the page shows it; a broken one has a sentence and no series."""

    key: str
    seed: int
    status: str
    sentence: str
    progress: float
    seconds: float
    machine: str
    series: dict[str, list[float | None]]


class VerdictView(msgspec.Struct, frozen=True):
    met: bool
    sentence: str


class Panel(msgspec.Struct, frozen=True):
    """One experiment at one scale."""

    name: str
    paper: str
    figure: str
    claim: str
    notes: str
    variant: str
    settings: dict[str, Any]
    verdicts: list[VerdictView]
    runs: list[RunView]


class Table1Row(msgspec.Struct, frozen=True):
    title: str
    theorem: str
    variant: str
    paper: tuple[bool, bool]
    answer: Answer
    panels: dict[str, str]


class Page(msgspec.Struct, frozen=True):
    """Everything on the page. `others` are runs of experiments that are not in the registry."""

    table1: list[Table1Row]
    panels: list[Panel]
    others: list[RunView]


def gather(store: Store) -> Page:
    """The page's content: Table 1 as it stands, every panel that has runs, and the rest."""
    runs = {run.key: run for run in store.runs()}
    wanted = [
        (e, variant)
        for e in experiments().values()
        for variant in VARIANTS
        if _has(e, variant, runs)
    ]
    points = _points_a_run(len(runs))
    panels = [_panel(e, variant, store, runs, points) for e, variant in wanted]
    shown = {run.key for panel in panels for run in panel.runs}
    others = [_view(run, points) for key, run in runs.items() if key not in shown]
    return Page(_table1(store, {(p.name, p.variant) for p in panels}), panels, others)


def _has(e: Experiment, variant: VariantName, runs: dict[str, StoredRun]) -> bool:
    return not runs.keys().isdisjoint(e.variant(variant).keys())


def _points_a_run(count: int) -> int:
    return max(POINTS_AT_LEAST, NUMBERS_AT_MOST // (len(CURVES) * max(1, count)))


def _table1(store: Store, present: set[tuple[str, str]]) -> list[Table1Row]:
    """The rows whose runs the store has, at the larger scale where it has both."""
    found = []
    for row in ROWS:
        names = {role: e.name for role, e in roles(row).items()}
        for variant in ("full", "quick"):
            if all((name, variant) in present for name in names.values()):
                found.append(_row(row, variant, names, store))
                break
    return found


def _row(row: Row, variant: VariantName, names: dict[str, str], store: Store) -> Table1Row:
    setup = row.full if variant == "full" else row.quick
    found = answer(setup, roles(row), variant, store)
    return Table1Row(row.title, row.theorem, variant, row.paper, found, names)


def _panel(
    e: Experiment, variant: VariantName, store: Store, runs: dict[str, StoredRun], points: int
) -> Panel:
    asked = e.variant(variant).keys()
    here = [runs[key] for key in asked if key in runs]
    return Panel(
        name=e.name,
        paper=e.paper,
        figure=e.figure,
        claim=e.claim,
        notes=e.notes,
        variant=variant,
        settings=msgspec.to_builtins(e.variant(variant).task),
        verdicts=_verdicts(e, variant, store),
        runs=[_view(run, points) for run in here],
    )


def _verdicts(e: Experiment, variant: VariantName, store: Store) -> list[VerdictView]:
    try:
        judged = runner.judge(e, variant, store)
    except FlattestError as error:
        # What cannot be judged (a run it compares with is missing or broken) is said, not hidden.
        return [VerdictView(False, str(error))]
    return [VerdictView(v.met, v.sentence) for v in judged.verdicts]


def _view(run: StoredRun, points: int) -> RunView:
    try:
        series = {name: _rounded(_thinned(values, points)) for name, values in _drawn(run).items()}
        status, sentence, machine = run.status, run.sentence, _machine(run)
    except FlattestError as error:
        series, status, sentence, machine = {}, "broken", str(error), ""
    return RunView(run.key, run.seed, status, sentence, run.progress, run.seconds, machine, series)


def _drawn(run: StoredRun) -> dict[str, np.ndarray]:
    series = {name: np.asarray(values, float) for name, values in run.series().items()}
    if "epoch" in series:
        return {name: series[name] for name in CURVES if name in series}
    return {
        name: np.atleast_1d(values).ravel()
        for name, values in series.items()
        if values.size <= 20_000
    }


def _machine(run: StoredRun) -> str:
    made = run.provenance()
    return "" if made is None else f"{made.machine}, {made.cores} cores"


def _thinned(values: np.ndarray, points: int) -> np.ndarray:
    """At most `points` of the values, evenly taken, the first and the last among them."""
    if len(values) <= points:
        return values
    return values[np.unique(np.linspace(0, len(values) - 1, points).round().astype(int))]


def _rounded(values: Iterable[float]) -> list[float | None]:
    """Five significant digits; None for what JSON cannot say."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values]
