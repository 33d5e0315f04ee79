"""The committed pictures of papers and studies are those of their committed results."""

import pytest
from msgspec.structs import replace

from flattest.experiments.registry import papers
from flattest.lab.summary import read_summaries
from flattest.ledger.figures import RESULTS
from support.pictures import differing
from support.places import ROOT

DRAWN = {
    name: module.PICTURES
    for name, paper in papers().items()
    if (module := paper.module("picture")) is not None
}
PICTURES = [(paper, name) for paper, pictures in DRAWN.items() for name in pictures]

# The share of pixels by which a picture may differ from the committed one.
ALIKE = 0.003


def without(part):
    """All but the experiments with this in their names."""
    return lambda summaries: [s for s in summaries if part not in s.experiment]


def halved(experiment):
    """Half of every number of one experiment."""

    def of(summary):
        if summary.experiment != experiment:
            return summary
        columns = {
            name: spread and type(spread)(spread.median / 2, spread.low / 2, spread.high / 2)
            for name, spread in summary.columns.items()
        }
        return replace(summary, columns=columns)

    return lambda summaries: [of(s) for s in summaries]


SHOWN = [
    ("vardhan2026", "ends", without("quadratic")),
    ("vardhan2026", "exponents", without("quadratic")),
    ("question1", "outcomes", without("d30-n100")),
    ("question2", "ways", without("same-start")),
    ("question2", "decides", without("decides-softplus")),
    ("question2", "limits", halved("question2/walls")),
    ("question2", "scales", halved("question2/scales")),
]


def difference(paper, name, folder, changed=list):
    """Between the committed picture and that of the committed results, some of them changed."""
    results = changed(read_summaries(papers()[paper].folder / RESULTS))
    kept = ROOT / "docs" / "figures" / paper / f"{name}.png"
    return differing(DRAWN[paper][name](results), kept, folder)


def test_of_every_paper_with_pictures_other_results_are_shown():
    assert {paper for paper, _, _ in SHOWN} == set(DRAWN)


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "name"), PICTURES)
def test_a_picture_is_that_of_the_committed_results(paper, name, tmp_path):
    assert difference(paper, name, tmp_path) <= ALIKE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paper", "name", "changed"), SHOWN, ids=[f"{paper} {name}" for paper, name, _ in SHOWN]
)
def test_a_picture_of_other_results_would_be_noticed(paper, name, changed, tmp_path):
    assert difference(paper, name, tmp_path, changed) > ALIKE
