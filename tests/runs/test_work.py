"""What is said of the work on a run."""

import numba

from flattest.experiments.registry import experiment
from flattest.runs.plan import Job
from flattest.runs.work import compiling_said


def job():
    task = experiment("fig4b").quick.task
    return Job(task, 0, "0" * 8, "fig4b")


def test_compiling_is_said_once_with_its_time(capsys):
    @numba.njit
    def inner(x):
        return x + 1

    @numba.njit
    def outer(x):
        return inner(x) * 2

    for expected in (True, False):
        with compiling_said(job(), least=0.001):
            outer(1)
        said = capsys.readouterr().err
        assert ("fig4b seed 0: compiling took" in said) == expected
        assert ("next run starts without it" in said) == expected


def test_short_compiling_is_not_worth_a_word(capsys):
    with compiling_said(job(), least=1e9):
        numba.njit(lambda x: x - 1)(1)
    assert capsys.readouterr().err == ""
