"""What the check of a figure rests on: the summary of an experiment, wherever there is one.

The runs of the store come first, at full scale or, where it expects the same, at the quick one;
then the committed results of a paper, `results.json` in its folder, which is what
`flattest summary 'PAPER/*' --full --json` printed. Nothing is trained.
"""

from collections.abc import Iterator
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
    """A summary, and where it is from."""

    summary: Summary
    place: str

    def __str__(self) -> str:
        s = self.summary
        return f"{s.experiment} {s.variant}, {seeds_in_words(s.seeds)}, from {self.place}"


def basis(name: str, store: Store | None = None) -> Basis:
    """The summary of the experiment's runs."""
    e = experiment(name)
    for variant in _telling(e):
        for summary in summarize([e], variant, store) if store else ():
            return Basis(summary, "the store")
    for found in committed():
        s = found.summary
        # Panels that train the same network share their runs, whichever of them was summarized.
        if experiments()[s.experiment].variant(s.variant).task == e.variant(s.variant).task:
            return found
    raise NotRun(f"There are no runs of {name}: {how_to_run(name, 'full')} makes them.")


def _telling(e: Experiment) -> tuple[VariantName, ...]:
    """The variants that show what the full one does: the quick one if it is expected to."""
    quick, full = ({x.quantity for x in v.expectations} for v in (e.quick, e.full))
    return ("full", "quick") if full <= quick else ("full",)


def committed() -> Iterator[Basis]:
    """The summaries in the papers' folders whose runs an engine with the same numbers made."""
    for paper in papers().values():
        path = paper.folder / RESULTS
        for summary in read_summaries(path) if path.is_file() else ():
            known = summary.experiment in experiments()
            if known and summary.engine in (ENGINE_VERSION, *SAME_NUMBERS):
                place = f"{paper.package.replace('.', '/')}/{RESULTS}, commit {summary.commit[:7]}"
                yield Basis(summary, place)
