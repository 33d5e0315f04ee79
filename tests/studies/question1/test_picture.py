"""The phase diagram of question 1."""

import pytest

from flattest.lab.summary import read_summaries
from flattest.studies.question1.picture import RESULTS, draw


@pytest.mark.slow
def test_the_picture_is_drawn():
    assert len(draw(read_summaries(RESULTS)).axes) == 4
