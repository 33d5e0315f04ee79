"""Training experiments: stored, resumed, and judged so that a wrong engine fails."""

import subprocess
import sys

import jax
import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.errors import FlattestError
from flattest.experiments.expectations import AtMost, WithinOfBound
from flattest.experiments.experiment import Experiment, Variant
from flattest.experiments.registry import read_experiment
from flattest.experiments.training import Training
from flattest.runs.plan import plan
from flattest.runs.results import results
from flattest.runs.run import run_experiments
from flattest.runs.store import Store
from flattest.training import loop
from flattest.training.keys import run_key
from flattest.training.log import Log
from support.places import ENVIRONMENT

TASK = Training(
    distribution=ft.Xor(8),
    n=24,
    model=ft.MLP(32, bias=True),
    phases=(ft.sam(0.02, 0.1, epochs=400),),
    log=Log(points=20, snapshots=4),
    backend="jax",
)
EXPECTATIONS = (AtMost(series="train_loss", value=0.01), WithinOfBound(relative=0.03))


def experiment(task=TASK, seeds=2, expectations=EXPECTATIONS):
    variant = Variant(task, seeds, expectations)
    return Experiment(
        name="t/training",
        figure="Figure 4b",
        statement="SAM flattens.",
        quick=variant,
        full=variant,
    )


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "store")


def test_a_trained_network_is_stored_with_its_history_and_meets_its_expectations(store):
    (assessment,) = run_experiments([experiment()], "quick", store, workers=1)
    assert assessment.met, assessment.verdicts
    run = assessment.runs[0]
    epochs = run.series()["epoch"]
    assert (epochs[0], epochs[-1]) == (0, 400)
    assert [c.epoch for c in run.checkpoints()][-1] == 400
    for name, value in run.checkpoints()[-1].params().items():
        np.testing.assert_array_equal(value, run.params()[name])
    assert run.notes()["backend"] == "jax"
    assert not (run.folder / "scratch").exists()


def test_a_wrong_sign_in_the_perturbation_makes_the_expectations_fail(store, monkeypatch):
    length = loop._of_length
    monkeypatch.setattr(loop, "_of_length", lambda rho, g: -length(rho, g))
    jax.clear_caches()  # what was compiled before has the right sign
    try:
        (assessment,) = run_experiments([experiment()], "quick", store, workers=1)
    finally:
        jax.clear_caches()
    assert [run.status for run in assessment.runs] == ["finished", "finished"]
    assert not assessment.verdicts[1].holds


def test_every_setting_of_a_training_is_in_its_key():
    changes = {
        "distribution": ft.Xor(9),
        "n": 25,
        "model": ft.MLP(33, bias=True),
        "phases": (ft.sam(0.02, 0.2, epochs=400),),
        "loss": ft.Logistic(),
        "log": Log(points=21),
        "test_size": 100,
        "backend": "fused",
        "dtype": "float64",
    }
    assert set(changes) == set(Training.__struct_fields__)
    keys = {run_key(msgspec.structs.replace(TASK, **{k: v}), 0) for k, v in changes.items()}
    assert len(keys | {run_key(TASK, 0)}) == len(changes) + 1


def test_a_training_survives_a_spec_file(tmp_path):
    (tmp_path / "spec.json").write_bytes(msgspec.json.encode(experiment()))
    back = read_experiment(tmp_path / "spec.json")
    assert back == experiment()
    assert back.quick.keys() == experiment().quick.keys()


def test_an_impossible_training_is_refused_before_it_runs():
    with pytest.raises(FlattestError, match="larger than the 24 training points"):
        msgspec.structs.replace(TASK, phases=(ft.sgd(0.1, batch=25, epochs=1),)).__post_init__()
    with pytest.raises(FlattestError, match="at least one phase"):
        Training(distribution=ft.Xor(8), n=4, model=ft.MLP(3), phases=())


def test_divergence_is_a_result_that_meets_nothing(store):
    wild = msgspec.structs.replace(TASK, phases=(ft.sgd(1e3, epochs=5),))
    (assessment,) = run_experiments([experiment(wild, 1)], "quick", store, workers=1)
    assert assessment.runs[0].status == "diverged"
    assert not any(verdict.holds for verdict in assessment.verdicts)


def test_the_longest_training_is_started_first(store):
    long = msgspec.structs.replace(TASK, phases=(ft.sam(0.02, 0.1, epochs=800),))
    wide = msgspec.structs.replace(TASK, model=ft.MLP(100, bias=True))
    jobs = plan([experiment(t, 1) for t in (TASK, long, wide)], "quick", store)
    assert [job.task for job in jobs] == [wide, long, TASK]


KILLED = """
import functools, os, signal, sys
from pathlib import Path
from flattest.experiments.registry import read_experiment
from flattest.runs.run import run_experiments
from flattest.runs.lease import Lease
from flattest.runs.store import Store
from flattest.training import train

def progress(lease, fraction, step, series):
    if fraction > 0.5:
        os.kill(os.getpid(), signal.SIGKILL)

Lease.progress = progress
train.train = functools.partial(train.train, checkpoint_seconds=0.0, progress_seconds=0.0)
run_experiments([read_experiment(Path(sys.argv[1]))], "quick", Store.create(sys.argv[2]), workers=1)
"""


def test_a_training_killed_half_way_resumes_to_the_same_bits(store, tmp_path):
    e = experiment(msgspec.structs.replace(TASK, backend="auto"), 1)
    (tmp_path / "spec.json").write_bytes(msgspec.json.encode(e))
    command = [sys.executable, "-c", KILLED, tmp_path / "spec.json", tmp_path / "killed"]
    assert subprocess.run(command, env=ENVIRONMENT, timeout=180).returncode == -9
    killed = Store.open(tmp_path / "killed")
    assert [run.status for run in killed.runs()] == ["interrupted"]
    assert list(killed.runs()[0].folder.glob("scratch/*.safetensors"))
    for s in (killed, store):
        run_experiments([e], "quick", s, workers=1)
    resumed, whole = (results(e, "quick", s)[0] for s in (killed, store))
    for one, other in ((resumed.series, whole.series), (resumed.params, whole.params)):
        assert set(one) == set(other)
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
