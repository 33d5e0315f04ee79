"""What the check of a figure rests on: the summary of an experiment, wherever there is one.

The runs of the store come first, at full scale or, where the same is expected, at the quick one;
then the committed results of a paper, `results.json` in its folder, which is what
`flattest summary 'PAPER/*' --full --json` printed. Nothing is trained.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from flattest.errors import FlattestError
from flattest.evidence import seeds_in_words
from flattest.experiments.experiment import Experiment, VariantName
from flattest.experiments.registry import experiment, experiments, papers
from flattest.lab.summary import Summary, read_summaries, summarize
from flattest.runs.results import how_to_run
from flattest.runs.store import Store
from flattest.training.state import ENGINE_VERSION, SAME_NUMBERS

RESULTS = "results.json"


class NotRun(FlattestError):
    """Neither the store nor the committed results have the runs."""


class Basis(NamedTuple):
    """A summary, and the file of committed results that it is from; None where it is the store."""

    summary: Summary
    file: Path | None = None

    @property
    def place(self) -> str:
        return f"commit {self.summary.commit[:7]}" if self.file else "the store"

    def __str__(self) -> str:
        s, file = self.summary, f"{self.file}, " if self.file else ""
        return f"{s.experiment} {s.variant}, {seeds_in_words(s.seeds)}, from {file}{self.place}"


def basis(name: str, store: Store | None = None) -> Basis:
    """The summary of the experiment's runs."""
    e = experiment(name)
    for variant in telling_variants(e):
        for summary in summarize([e], variant, store) if store else ():
            return Basis(summary)
    # Panels that train the same network share their runs; a panel's own summary has its verdicts.
    same = [found for found in committed() if _trains(e, found.summary)]
    for found in sorted(same, key=lambda found: found.summary.experiment != e.name):
        return found
    raise NotRun(f"There are no runs of {name}: {how_to_run(name, 'full')} makes them.")


def _trains(e: Experiment, s: Summary) -> bool:
    """Whether the summary is of runs of the experiment's own task."""
    return experiments()[s.experiment].variant(s.variant).task == e.variant(s.variant).task


def telling_variants(e: Experiment) -> tuple[VariantName, ...]:
    """The variants that show what the full one does: the quick one if all is expected of it that
    is expected of the full one, to the same threshold."""
    alike = all(expectation in e.quick.expectations for expectation in e.full.expectations)
    return ("full", "quick") if alike else ("full",)


def committed() -> Iterator[Basis]:
    """The summaries in the papers' folders whose runs an engine with the same numbers made."""
    engines = (ENGINE_VERSION, *SAME_NUMBERS)
    for paper in papers().values():
        path = paper.folder / RESULTS
        for summary in read_summaries(path) if path.is_file() else ():
            if summary.experiment in experiments() and summary.engine in engines:
                yield Basis(summary, _from_here(path))


def _from_here(path: Path) -> Path:
    """The path from the working directory, where it is inside of that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
