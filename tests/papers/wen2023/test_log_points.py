"""Logging takes a tenth of a quick variant's processor time at most."""

import importlib.util

import pytest
from msgspec.structs import replace

from flattest.experiments.registry import experiment
from flattest.papers.wen2023.experiments import EXPERIMENTS, OFTEN, SPARSELY
from support.places import ROOT

SPARSE = [e.name for e in EXPERIMENTS if getattr(e.quick.task, "log", None) == SPARSELY["log"]]
ATTEMPTS = 3  # on a busy machine the least of several is nearest to the truth


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("log_points", ROOT / "benchmarks/log_points.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def share(bench, task):
    """The least share of a run's processor time that its log points took, kernels compiled."""
    bench.shares(task, bench.shortened(task.phases))
    found = (bench.shares(task, task.phases) for _ in range(ATTEMPTS))
    return min(log / (log + engine) for _, log, engine in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPARSE)
def test_the_log_of_a_short_run_takes_a_tenth_of_it_at_most(bench, name):
    assert share(bench, experiment(name).quick.task) <= 0.1


@pytest.mark.slow
def test_so_short_a_run_could_not_be_logged_often(bench):
    task = replace(experiment("wen2023/fig9a").quick.task, **OFTEN, test_size=10_000)
    assert share(bench, task) > 0.1
