"""Checkpoints: an interrupted run continues with the same bits, and damage is seen and named."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import flattest as ft
from flattest.files import read_tensors
from flattest.training import checkpoint, engines
from flattest.training.log import Log
from flattest.training.train import train
from support.killed_runs import COUNT, run
from support.places import ENVIRONMENT, TESTS

pytestmark = pytest.mark.rounding

NET = ft.MLP(width=12, bias=True)
DATA = ft.xor(n=12, d=5, seed=1)
PHASES = (ft.sam(0.05, 0.1, epochs=20), ft.sgd(0.02, epochs=20))


def short_run(folder=None, **changes):
    settings = {"seed": 3, "log": Log(points=12, measures=("test", "norms")), **changes}
    return train(NET, DATA, PHASES, checkpoint=folder, checkpoint_seconds=0.0, **settings)


def assert_same_bits(run, expected):
    assert set(run.params) == set(expected.params)
    assert set(run.series) == set(expected.series)
    for name, value in expected.params.items():
        assert run.params[name].dtype == value.dtype
        assert (run.params[name] == value).all()
    for name, column in expected.series.items():
        assert np.array_equal(run.series[name], column, equal_nan=True)
    assert (run.status, run.step, run.epoch) == (expected.status, expected.step, expected.epoch)


def checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def epochs_done(folder: Path) -> int:
    return int(read_tensors(checkpoints(folder)[-1])[0]["series/epoch"][-1])


def kill_while_running(base: Path, moment: int) -> None:
    """Starts the twenty runs and kills their process -9 once they have saved `moment` times."""
    process = subprocess.Popen(
        [sys.executable, str(TESTS / "support" / "killed_runs.py"), str(base)],
        env=ENVIRONMENT,
    )
    try:
        deadline = time.monotonic() + 300
        while saved_so_far(base) < moment:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def saved_so_far(base: Path) -> int:
    found = (checkpoints(base / str(i)) for i in range(COUNT))
    return sum(int(files[-1].name.split("-")[0]) + 1 if files else 0 for files in found)


@pytest.mark.slow
def test_runs_killed_at_twenty_moments_continue_with_the_same_bits(tmp_path):
    moment = int(np.random.default_rng(7).integers(250, 450))
    kill_while_running(tmp_path, moment)
    begun = [i for i in range(COUNT) if checkpoints(tmp_path / str(i))]
    midway = [i for i in begun if 0 < epochs_done(tmp_path / str(i)) < 1200]
    assert len(midway) >= COUNT // 2
    assert {i % 2 for i in midway} == {0, 1}
    for i in range(COUNT):
        resumed = run(i, tmp_path / str(i))
        assert resumed.notes == ()
        assert_same_bits(resumed, run(i, None))


@pytest.mark.parametrize("backend", ["jax", "fused"])
def test_ctrl_c_saves_the_run_inside_a_phase(tmp_path, monkeypatch, backend):
    engine, calls = engines.ENGINES[backend], []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return engine(*arguments)

    monkeypatch.setitem(engines.ENGINES, backend, interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(NET, DATA, PHASES, seed=3, backend=backend, checkpoint=tmp_path)
    at = calls[-1][2]
    assert 0 < at.phase_epoch < 20
    monkeypatch.undo()
    resumed = train(NET, DATA, PHASES, seed=3, backend=backend, checkpoint=tmp_path)
    assert_same_bits(resumed, train(NET, DATA, PHASES, seed=3, backend=backend))


def test_a_finished_run_is_not_trained_again(tmp_path, monkeypatch):
    first = short_run(tmp_path)

    def never(*arguments):
        raise AssertionError("a finished run was trained")

    monkeypatch.setitem(engines.ENGINES, "fused", never)
    assert_same_bits(short_run(tmp_path), first)


def test_a_diverged_run_stays_diverged(tmp_path):
    def wild():
        return train(NET, DATA, ft.sgd(3.0, epochs=50), checkpoint=tmp_path)

    assert_same_bits(wild(), wild())
    assert wild().status == "diverged"


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def altered(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def emptied(data: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [truncated, altered, emptied])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path, damage):
    expected = short_run(tmp_path)
    before, newest = checkpoints(tmp_path)
    newest.write_bytes(damage(newest.read_bytes()))
    resumed = short_run(tmp_path)
    assert len(resumed.notes) == 1
    assert newest.name in resumed.notes[0]
    assert "damaged" in resumed.notes[0]
    assert_same_bits(resumed, expected)
    assert newest not in checkpoints(tmp_path)
    assert before in checkpoints(tmp_path)


def test_a_run_whose_checkpoints_are_all_damaged_starts_again(tmp_path):
    expected = short_run(tmp_path)
    for path in checkpoints(tmp_path):
        path.write_bytes(altered(path.read_bytes()))
    resumed = short_run(tmp_path)
    assert len(resumed.notes) == 2
    assert_same_bits(resumed, expected)


def test_two_checkpoints_are_kept_and_nothing_else(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".000000-abc.safetensors.x.tmp").write_bytes(b"left by a kill")
    short_run(folder)
    assert len(checkpoints(folder)) == 2
    assert sorted(folder.iterdir()) == checkpoints(folder)


def test_a_file_that_is_no_checkpoint_by_its_name_is_left_alone(tmp_path):
    stray = tmp_path / "1x-copy.safetensors"
    stray.write_bytes(b"not ours")
    assert short_run(tmp_path).notes == ()
    assert stray.read_bytes() == b"not ours"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 4}, "model, initial parameters, seed"),
        ({"backend": "jax"}, "backend"),
        ({"dtype": "float64"}, "model, initial parameters"),
        ({"log": Log(points=3)}, "log"),
        ({"test_size": 5}, "test_size"),
    ],
)
def test_the_checkpoints_of_another_run_are_refused(tmp_path, changes, named):
    short_run(tmp_path)
    with pytest.raises(ft.FlattestError, match=f"another run, which differs in {named};"):
        short_run(tmp_path, **changes)


def interrupted_run(folder, monkeypatch):
    """A run of which half is done."""
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoints, "is_due", True)
        with pytest.raises(KeyboardInterrupt):
            short_run(folder, progress=stop_half_way, progress_seconds=0.0)
    assert 0 < epochs_done(folder) < 40


def stop_half_way(seen):
    if seen.fraction > 0.5:
        raise KeyboardInterrupt


def rounding_by(monkeypatch, relative):
    """Another kind of processor, whose products are off by so much."""
    real = checkpoint.predict_by_jax
    off = 1 + relative * np.cos(np.arange(DATA.n))
    monkeypatch.setattr(checkpoint, "predict_by_jax", lambda *a: off * real(*a))


def test_a_run_goes_on_where_the_network_rounds_otherwise(tmp_path, monkeypatch):
    interrupted_run(tmp_path, monkeypatch)
    rounding_by(monkeypatch, 1e-15)
    assert_same_bits(short_run(tmp_path), short_run())


def test_a_run_does_not_go_on_with_a_network_that_computes_something_else(tmp_path, monkeypatch):
    interrupted_run(tmp_path, monkeypatch)
    rounding_by(monkeypatch, 1e-6)
    with pytest.raises(ft.FlattestError, match="another run, which differs in model;"):
        short_run(tmp_path)


def test_a_checkpoint_that_knows_its_network_to_the_bit_is_gone_on_from(tmp_path, monkeypatch):
    """As they were written before."""
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_rounded", lambda values: values)
        interrupted_run(tmp_path, monkeypatch)
    assert_same_bits(short_run(tmp_path), short_run())


def test_a_network_that_only_starts_alike_is_another_run(tmp_path):
    """Sim-LN's ε matters where ‖φ‖ ≤ ε, which is nowhere at the start."""
    one, other = (ft.MLP(width=12, norm="sim_ln", epsilon=e) for e in (1e-5, 1e-4))
    train(one, DATA, PHASES, checkpoint=tmp_path)
    with pytest.raises(ft.FlattestError, match="another run, which differs in model;"):
        train(other, DATA, PHASES, checkpoint=tmp_path)


def test_snapshots_are_the_parameters_at_logged_epochs(tmp_path):
    run = short_run(snapshots=tmp_path, log=Log(points=12, snapshots=5))
    kept = {int(path.stem): read_tensors(path)[0] for path in checkpoints(tmp_path)}
    assert len(kept) == 5
    assert {0, run.epoch} <= set(kept) <= set(run.series["epoch"].astype(int))
    for epoch, params in kept.items():
        at = run.series["epoch"].tolist().index(epoch)
        norm = np.linalg.norm(params["W1"].astype(float))
        assert norm == pytest.approx(run.series["norm_W1"][at], rel=1e-14)
    assert all((kept[run.epoch][name] == value).all() for name, value in run.params.items())
