"""Axes ready for print."""

import pytest
from matplotlib.figure import Figure

from flattest.lab.curves import plain_ticks


def ticks(low, high):
    ax = Figure().subplots()
    ax.set(xscale="log", xlim=(low, high))
    plain_ticks(ax.xaxis)
    return [label.get_text() for label in ax.get_xticklabels()]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (3, 300, ["5", "10", "20", "50", "100", "200"]),
        (120, 410, ["150", "200", "300", "400"]),
        (0.9, 1.6, ["1", "1.5"]),
    ],
)
def test_ticks_are_round_numbers_and_enough_of_them(low, high, said):
    assert ticks(low, high) == said


def test_a_long_axis_keeps_its_powers():
    assert all(text.startswith("$") for text in ticks(1, 1e4) if text)
