"""The tables of question 1: thresholds, and that the page has what results.json has."""

from fnmatch import fnmatch

import numpy as np
import pytest

from flattest.lab.summary import read_summaries
from flattest.studies.question1.diagram import DIMENSIONS, SHARES, sizes
from flattest.studies.question1.faces import OUTCOMES
from flattest.studies.question1.picture import RESULTS
from flattest.studies.question1.tables import counts, decided, outcomes, threshold
from support.doc_tables import tables

SUMMARIES = read_summaries(RESULTS)
PAGE = tables.page("question1").read_text(encoding="utf-8")


def test_a_threshold_is_found_with_its_interval():
    """Draws from a logistic curve with its middle at 3.2: the interval has it, and is not wide."""
    rng = np.random.default_rng(0)
    shares = (1.8, 2.5, 3.0, 3.5, 4.0, 5.0)
    drawn = {x: (int(rng.binomial(200, 1 / (1 + np.exp(5 * (x - 3.2))))), 200) for x in shares}
    found = threshold(drawn)
    assert found.low <= 3.2 <= found.high
    assert found.high - found.low < 0.3
    moved = threshold({x + 1: count for x, count in drawn.items()})
    assert moved.at == pytest.approx(found.at + 1, abs=0.05)


def test_a_sharp_step_is_found_between_its_cells():
    found = threshold({2.0: (10, 10), 3.0: (10, 10), 4.0: (0, 10)})
    assert 3 < found.low <= found.at <= found.high < 4


def test_the_tables_of_the_page_are_those_of_the_committed_results():
    assert tables.with_tables(PAGE, SUMMARIES) == PAGE
    assert tables.with_tables(PAGE, SUMMARIES[1:]) != PAGE
    found = list(tables.MARK.finditer(PAGE))
    assert {mark["table"] for mark in found} >= {"outcomes", "phases", "thresholds"}
    shown = [name for mark in found for name in (mark["names"] or "").split()]
    for summary in SUMMARIES:
        panel = summary.experiment.partition("/")[2]
        assert sum(fnmatch(panel, name) for name in shown) == 1, panel


def test_sentences_of_the_page_have_the_numbers_of_the_results():
    page = " ".join(PAGE.split())
    found = decided(SUMMARIES)
    few, own = found[30, 54], found[30, 100]
    assert f"refuted on all {few['refuted']:.0f} draws of n = 54" in page
    assert sum(few[name] for name in OUTCOMES) == few["refuted"]
    assert f"proven on {own['proven']:.0f} of 10 draws of the paper's own n = 100" in page
    proven = [_total(counts(SUMMARIES, "phase-d{d}-n{n}", d, "proven")) for d in DIMENSIONS]
    assert [draws for _, draws in proven] == [60] * 4
    said = "Of the 60 draws of each d are proven {}, {}, {} and {}."
    assert said.format(*(k for k, _ in proven)) in page


def _total(counted):
    return tuple(sum(numbers) for numbers in zip(*counted.values(), strict=True))


def test_the_page_says_from_which_n_on_1_sam_generalizes():
    page = " ".join(PAGE.split())
    sam = {s.experiment: s for s in SUMMARIES if s.experiment.startswith("question1/sam-d")}
    errors = {
        d: {n / d: sam[f"question1/sam-d{d}"].column(f"n = {n}").median for n in sizes(d)}
        for d in DIMENSIONS
    }
    first = [max(x for x in found if found[x] >= 0.001) for found in errors.values()]
    then = [min(x for x in SHARES if x > last) for last in first]
    said = "it is below 0.001 in the median from n/d = {:g}, {:g}, {:g} and {:g} on"
    assert said.format(*then) in page


def test_outcomes_are_counted_from_the_draws():
    (paper,) = [line for line in outcomes(SUMMARIES).splitlines() if line.startswith("| 30 | 100 ")]
    assert paper.endswith("| 0, 1, 3, 4, 5 |")
