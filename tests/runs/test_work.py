"""What is said of the work on a run."""

import importlib.util
import os
import subprocess
import sys

import numba
import pytest

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


FIRST_RUN = """
import sys
from pathlib import Path
import flattest as ft
from flattest.experiments.training import Training
from flattest.problem.models import OwnModel
from flattest.runs.plan import Job
from flattest.runs.store import Store
from flattest.runs.work import work

def module(d):
    import torch

    print("threads", torch.get_num_threads())
    return torch.nn.Linear(d, 1)

phases, log = (ft.sgd(0.01, epochs=2),), ft.Log(points=2, measures=("training",))
own = OwnModel.of(ft.pytorch(module))
task = Training(ft.Xor(3), 4, own, phases, log=log, test_size=4)
assert "torch" not in sys.modules
store = Store.create(Path("store"))
key = store.add(task, 0, "mine")
assert work(store.root, Job(task, 0, key, "mine")) and store.run(key).done
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is an extra")
def test_the_first_run_of_a_process_has_one_thread_as_the_next_has(cwd):
    """PyTorch came during the first, with threads of its own: a run that was the second of a
    process, and the first of the one that went on with it, was done with one and then with many."""
    many = os.environ | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_RUN], env=many, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split("\n")) == {"threads 1", ""}


FIRST_FLOW = """
import sys
from threadpoolctl import threadpool_info
import flattest as ft
from flattest.experiments.training import Training
from flattest.runs.plan import Job
from flattest.runs.work import one_thread

task = Training(ft.Xor(3), 4, ft.MLP(9, bias=True), (ft.gd(0.1, epochs=9),))
with one_thread(Job(task, 0, "key", "mine")):
    from flattest.training import flow_engine, train
    print(*{library["num_threads"] for library in threadpool_info()})
"""


def test_libraries_of_a_first_run_are_there_before_their_threads_are_limited():
    """SciPy's OpenBLAS is its own, and came with the engine of flows: with two threads."""
    many = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_FLOW], env=many, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"
