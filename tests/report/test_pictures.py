"""The committed pictures of papers and studies are those of their committed results."""

import importlib

import pytest

from flattest.experiments.registry import papers
from flattest.lab.summary import read_summaries
from flattest.ledger.figures import RESULTS
from support.pictures import differing
from support.places import ROOT

DRAWN = {
    "vardhan2026": "flattest.papers.vardhan2026.picture",
    "question1": "flattest.studies.question1.picture",
    "question2": "flattest.studies.question2.picture",
}
PICTURES = [
    (paper, name) for paper, at in DRAWN.items() for name in importlib.import_module(at).PICTURES
]
# A part of the name of experiments that a picture shows.
SHOWN = [
    ("vardhan2026", "ends", "quadratic"),
    ("vardhan2026", "exponents", "quadratic"),
    ("question1", "outcomes", "d30-n100"),
]


def difference(paper, name, folder, without="?"):
    """Between the committed picture and that of the committed results, but for some."""
    summaries = read_summaries(papers()[paper].folder / RESULTS)
    kept = [s for s in summaries if without not in s.experiment]
    draw = importlib.import_module(DRAWN[paper]).PICTURES[name]
    return differing(draw(kept), ROOT / "docs" / "figures" / paper / f"{name}.png", folder)


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "name"), PICTURES)
def test_a_picture_is_that_of_the_committed_results(paper, name, tmp_path):
    assert difference(paper, name, tmp_path) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "name", "without"), SHOWN)
def test_a_picture_of_other_results_would_be_noticed(paper, name, without, tmp_path):
    assert difference(paper, name, tmp_path, without) > 0.01
