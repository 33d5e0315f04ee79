"""Table 1 as it is printed: what is expected here beside what the paper prints."""

import numpy as np
import pytest

from flattest.cli.table1 import as_expected, table
from flattest.lab.scenario import Answer, Finding, mean_error, scenario
from flattest.studies.table1.experiments import ARCHITECTURES


def finding(holds):
    grade = {True: "supported", False: "refuted", None: "open"}[holds]
    return Finding(grade, mean_error([0.0, 0.0], 0.1), "A sentence.")


def answers(sim_bn):
    """Those that are expected, but for the two of Sim-BN."""
    cells = {name: row.expected for name, row in ARCHITECTURES.items()} | {"sim-bn": sim_bn}
    halves = {name: tuple(map(finding, cell)) for name, cell in cells.items()}
    return [Answer(name, scenario(*both), *both) for name, both in halves.items()]


@pytest.mark.parametrize(
    ("cells", "expected"), [((False, True), True), ((True, True), False), ((None, True), False)]
)
def test_the_third_row_is_expected_to_differ_from_the_paper(cells, expected):
    found = answers(cells)
    rows = ARCHITECTURES.values()
    assert [as_expected(row, one) for row, one in zip(rows, found, strict=True)] == [
        *(True, True, expected, True)
    ]


def test_the_table_says_what_the_paper_prints_and_why_it_differs():
    cells = np.array([list(column.cells) for column in table(answers((False, True))).columns])
    last = cells[-1]
    assert "Scenario III" in last[2]
    assert "the paper prints" in last[2]
    assert "Theorem 3.2 fails as printed" in last[2]
    assert all("the paper prints" not in last[row] for row in (0, 1, 3))
