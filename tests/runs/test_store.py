"""The store: runs are whole or absent, keyed by what they compute, and shared by processes."""

import contextlib
import errno
import multiprocessing
import os
import resource
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from flattest import files, machine
from flattest.cli._dispatch import main
from flattest.cli._options import print_json
from flattest.errors import FlattestError
from flattest.files import (
    StoreError,
    read_series,
    read_tensors,
    write_bytes,
    write_sealed,
    write_series,
    write_tensors,
)
from flattest.problem.networks import load_params
from flattest.runs import folder, index
from flattest.runs.folder import read_record
from flattest.runs.lease import LeaseLost
from flattest.runs.provenance import provenance
from flattest.runs.store import Store
from flattest.training.checkpoint import Checkpoints
from flattest.training.keys import run_key
from flattest.training.run import Run
from support.places import SOURCE
from support.tasks import Spec, Square, do_what_is_free


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "store")


def finished(store, seed=0, label="paper/fig1", **results):
    key = store.add(Spec(), seed, label)
    with store.lease(key) as lease:
        lease.finish(
            Run(**({"series": {"epoch": [0, 1]}, "params": {"W1": np.ones((2, 2))}} | results))
        )
    return key


# Files


@settings(deadline=None)
@given(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, min_side=0)),
    st.text("abcW1_", min_size=1, max_size=5),
)
def test_series_come_back_bit_for_bit(tmp_path_factory, values, name):
    path = tmp_path_factory.mktemp("npz") / "series.npz"
    write_series(path, {name: values})
    back = read_series(path)
    assert list(back) == [name]
    assert back[name].dtype == np.float64
    assert back[name].shape == values.shape
    assert back[name].tobytes() == values.tobytes()


def test_tensors_keep_their_dtype_shape_and_order(tmp_path):
    tensors = {
        "W1": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "b_out": np.float64(2.5),
        "step": np.array([3]),
    }
    write_tensors(tmp_path / "p.safetensors", tensors, symbol="∇²L")
    back, metadata = read_tensors(tmp_path / "p.safetensors")
    for name, value in tensors.items():
        np.testing.assert_array_equal(back[name], value)
        assert back[name].dtype == np.asarray(value).dtype
        assert back[name].shape == np.shape(value)
    assert list(back) == sorted(tensors)
    assert metadata == {"symbol": "∇²L"}


def test_tensors_of_a_type_that_numpy_has_not_are_refused_in_one_sentence(tmp_path):
    header = b'{"W1":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    path = tmp_path / "p.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    with pytest.raises(FlattestError, match="NumPy has no type 'BF16'"):
        read_tensors(path)
    with pytest.raises(FlattestError, match="as safetensors: NumPy has no type 'BF16'"):
        load_params(path)


def test_series_that_are_not_numbers_are_refused_and_never_pickled(tmp_path):
    with pytest.raises(FlattestError, match="'label' is not an array of numbers"):
        write_series(tmp_path / "s.npz", {"label": [object()]})
    np.savez(tmp_path / "evil.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(FlattestError, match="damaged"):
        read_series(tmp_path / "evil.npz")


REFUSALS = {errno.ENOSPC: "free some space", errno.EACCES: "see that its folder can be written"}


@pytest.mark.parametrize(("code", "remedy"), REFUSALS.items())
def test_a_write_that_fails_leaves_the_old_file_and_says_what_helps(
    tmp_path, monkeypatch, code, remedy
):
    path = tmp_path / "run" / "spec.json"
    write_bytes(path, b"old")

    def refuse(handle):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(FlattestError, match=f"{os.strerror(code)}; {remedy}, or choose another p"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["spec.json"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_files_have_the_mode_that_the_umask_allows(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write_bytes(tmp_path / "spec.json", b"{}")
    finally:
        os.umask(before)
    assert (tmp_path / "spec.json").stat().st_mode & 0o777 == mode


# Runs


def test_a_run_goes_from_pending_through_running_to_finished(store):
    key = store.add(Spec(), 3, "paper/fig1")
    assert store.run(key).status == "pending"
    with store.lease(key) as lease:
        assert store.run(key).status == "running"
        lease.finish(
            Run(series={"epoch": [0, 1, 2]}, params={"W1": np.eye(2)}, step=20, backend="jax")
        )
    run = store.run(key)
    assert (run.status, run.seed, run.label, run.step) == ("finished", 3, "paper/fig1", 20)
    assert run.started <= run.finished
    assert run.seconds > 0
    np.testing.assert_array_equal(run.series()["epoch"], [0, 1, 2])
    np.testing.assert_array_equal(run.params()["W1"], np.eye(2))
    assert run.task() == {"type": "test", "lr": 0.01, "epochs": 10}
    assert run.notes() == {"backend": "jax"}
    assert run.provenance().cores >= 1
    assert run.provenance().versions["numpy"] == np.__version__


def test_asking_twice_is_asking_once_and_a_done_run_is_not_given_again(store):
    assert finished(store) == store.add(Spec(), 0, "paper/other")
    assert len(store.runs()) == 1
    assert store.lease(run_key(Spec(), 0)) is None


def test_the_series_of_a_running_run_can_be_read(store):
    key = store.add(Spec(), 0, "paper/fig1")
    with store.lease(key) as lease:
        assert store.run(key).series() == {}
        lease.progress(0.5, 10, {"train_loss": [1.0, 0.5]})
        seen = Store.open(store.root).run(key)
        assert (seen.status, seen.progress, seen.step) == ("running", 0.5, 10)
        np.testing.assert_array_equal(seen.series()["train_loss"], [1.0, 0.5])
        lease.finish(Run(series={"train_loss": [1.0, 0.5, 0.1]}))


def test_checkpoints_are_listed_by_epoch(store):
    key = store.add(Spec(), 0, "paper/fig1")
    with store.lease(key) as lease:
        for epoch in (100, 5, 20):
            write_tensors(lease.checkpoints / f"{epoch}.safetensors", {"W1": np.full(2, epoch)})
        lease.finish(Run(series={}))
    (store.run(key).folder / "checkpoints" / "best.safetensors").touch()
    history = store.run(key).checkpoints()
    assert [c.epoch for c in history] == [5, 20, 100]
    np.testing.assert_array_equal(history[2].params()["W1"], [100, 100])


def test_an_exception_makes_the_run_failed_with_its_sentence_and_it_is_given_again(store):
    key = store.add(Spec(), 0, "paper/fig1")
    with pytest.raises(FlattestError), store.lease(key):
        raise FlattestError("The width must be\npositive.")
    run = store.run(key)
    assert (run.status, run.sentence) == ("failed", "The width must be positive.")
    assert store.lease(key) is not None


def test_an_interruption_leaves_the_run_to_be_resumed(store):
    key = store.add(Spec(), 0, "paper/fig1")

    def interrupted():
        with store.lease(key) as lease:
            lease.progress(0.5, 10, {"epoch": [0]})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert store.run(key).status == "interrupted"
    assert store.run(key).progress == 0.5
    assert store.lease(key) is not None


@pytest.mark.parametrize("status", ["diverged", "stagnated"])
def test_divergence_and_stagnation_are_results(store, status):
    key = finished(store, status=status, sentence="Loss 1e40 at step 7.", step=7)
    run = store.run(key)
    assert (run.status, run.sentence, run.step) == (status, "Loss 1e40 at step 7.", 7)
    assert run.done
    assert store.lease(key) is None


def test_a_run_cannot_end_with_an_unknown_status(store):
    key = store.add(Spec(), 0, "paper/fig1")
    with pytest.raises(FlattestError, match="not 'ok'"), store.lease(key) as lease:
        lease.finish(Run(series={}, status="ok"))


# Broken runs


def truncate(path):
    path.write_bytes(path.read_bytes()[:-20])


def newer(path):
    write_sealed(path, msgspec.json.decode(path.read_bytes()) | {"schema": 99})


BREAKS = {
    "truncated series": ("series.npz", truncate, "damaged"),
    "missing series": ("series.npz", Path.unlink, "missing"),
    "truncated parameters": ("params.safetensors", truncate, "damaged"),
    "missing parameters": ("params.safetensors", Path.unlink, "missing"),
    "missing record": ("record.json", Path.unlink, "missing"),
    "truncated spec": ("spec.json", truncate, "damaged"),
    "missing spec": ("spec.json", Path.unlink, "missing"),
    "newer schema": ("spec.json", newer, "schema 99"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_run_is_marked_and_the_others_are_listed(store, name):
    file, damage, reason = BREAKS[name]
    whole, broken = finished(store, seed=0), finished(store, seed=1)
    damage(store.folder(broken) / file)
    runs = {run.key: run for run in store.runs()}
    assert runs[whole].status == "finished"
    assert runs[broken].status == "broken"
    assert reason in runs[broken].sentence


def test_bytes_that_rot_in_place_are_noticed_when_read(store):
    run = store.run(finished(store, series={"epoch": np.arange(100.0)}))
    path = run.folder / "series.npz"
    data = bytearray(path.read_bytes())
    data[400] ^= 1
    path.write_bytes(data)
    with pytest.raises(FlattestError, match="series.npz: it is damaged"):
        run.series()


def test_damage_anywhere_in_series_is_said_in_a_sentence_or_changes_no_number(tmp_path):
    """Unnoticed is only what is no part of the arrays, such as the date of a zip's entry."""
    path, series = tmp_path / "series.npz", {"epoch": np.arange(40), "v": np.eye(3)}
    write_series(path, series)
    whole, noticed = path.read_bytes(), []
    places = range(0, len(whole) - 4, 7)
    for at in places:
        path.write_bytes(whole[:at] + b"\xff\x00\x12\x63" + whole[at + 4 :])
        try:
            found = read_series(path)
        except FlattestError as error:
            noticed.append(str(error))
        else:
            assert found.keys() == series.keys()
            for name, values in series.items():
                np.testing.assert_array_equal(found[name], values)
    assert len(noticed) > len(places) / 2
    assert all("series.npz: it is damaged" in sentence for sentence in noticed)


KEPT = ("spec.json", "record.json", "series.npz", "params.safetensors", "checkpoints/5.safetensors")


def everything(store, key):
    """All that a run says."""
    run = store.run(key).verified()
    if run.status == "broken":
        raise FlattestError(run.sentence)
    values = {name: value.tolist() for name, value in (run.series() | run.params()).items()}
    kept = [checkpoint.params()["W1"].tolist() for checkpoint in run.checkpoints()]
    return run, run.task(), run.notes(), run.provenance(), values, kept


@pytest.mark.parametrize("name", KEPT)
def test_a_bit_that_flips_in_anything_a_run_keeps_is_said_or_changes_nothing(store, name):
    key = store.add(Spec(), 0, "paper/fig1")
    with store.lease(key) as lease:
        write_tensors(lease.checkpoints / "5.safetensors", {"W1": np.arange(4.0)})
        lease.finish(Run(series={"epoch": np.arange(9)}, params={"W1": np.eye(3)}, backend="jax"))
    path, before, said = store.folder(key) / name, everything(store, key), []
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for bit in rng.integers(8 * len(whole), size=60):
        rotten = bytearray(whole)
        rotten[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(rotten)
        try:
            found = everything(store, key)
        except FlattestError as error:
            said.append(str(error))
        else:
            assert found == before
    assert len(said) > 30
    assert all(name.rpartition("/")[2] in sentence for sentence in said)


def test_a_check_finds_what_has_rotted_in_place_and_says_what_to_do(store, capsys):
    """The disk changes a byte, and neither the size nor the time of the file."""
    sound, rotten = finished(store), finished(store, seed=1)
    path = store.folder(rotten) / "params.safetensors"
    at, data = path.stat(), bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))
    assert [run.status for run in store.runs()] == ["finished", "finished"]
    assert [run.status for run in store.check()] == ["finished", "broken"]
    assert main(["status", "--check", "--store", str(store.root)]) == 1
    out = capsys.readouterr().out
    assert "its digest does not match" in out
    assert "1 of 2 runs is broken; `flattest run " in out
    (store.folder(rotten) / "params.safetensors").write_bytes(
        (store.folder(sound) / "params.safetensors").read_bytes()
    )
    assert main(["status", "--check", "--store", str(store.root)]) == 0
    assert "All 2 runs are as they were written." in capsys.readouterr().out


def test_a_check_of_one_run_speaks_of_one(store, capsys):
    key = finished(store)
    assert main(["status", "--check", "--store", str(store.root)]) == 0
    assert "The run is as it was written." in capsys.readouterr().out
    (store.folder(key) / "params.safetensors").write_bytes(b"")
    assert main(["status", "--check", "--store", str(store.root)]) == 1
    assert "The run is broken; `flattest run " in capsys.readouterr().out


def test_a_listing_does_not_read_runs_that_are_as_it_saw_them(store, monkeypatch):
    key = finished(store)
    before = store.runs()
    reads = []
    monkeypatch.setattr(folder, "read_sealed", lambda *a: reads.append(a))
    assert store.runs() == before
    assert reads == []
    os.utime(store.folder(key) / "record.json")
    with pytest.raises(AttributeError):
        store.runs()
    assert len(reads) == 1


def test_a_listing_reads_the_index_once_and_opening_a_store_does_not(store, monkeypatch):
    finished(store)
    read, real = [], index.Index.rows
    monkeypatch.setattr(index.Index, "rows", lambda self: read.append(self) or real(self))
    again = Store.open(store.root)
    assert read == []
    assert len(again.runs()) == 1
    assert len(read) == 1


def test_the_last_sharpness_and_test_error_are_listed_also_of_runs_that_did_not_note_them(store):
    key = finished(store, series={"sharpness": [3.0, 2.5], "test_error": [0.5, np.nan]})
    assert (store.run(key).sharpness, store.run(key).test_error) == (2.5, None)
    path = store.folder(key) / "record.json"
    record = msgspec.json.decode(path.read_bytes())
    write_sealed(path, {k: v for k, v in record.items() if k != "sharpness"})
    assert store.runs()[0].sharpness == 2.5


def test_very_many_runs_are_listed_in_plain_text_with_the_same_words(store, capsys, monkeypatch):
    finished(store, label="paper/[fig1]")
    for many in (1, 0):
        monkeypatch.setattr("flattest.cli.status.MANY", many)
        assert main(["status", "--store", str(store.root)]) == 0
    out = capsys.readouterr().out
    first, second = out.split("Next:")[:2]
    assert "paper/[fig1]" in first
    assert first.split() == second.split("KEY` tells all of a run.")[1].split()


@pytest.mark.parametrize("many", [1, 0])
def test_no_label_commands_a_terminal(store, capsys, monkeypatch, many):
    finished(store, label="paper/\x1b]0;owned\x07\x1b[31mfig\x9b1m\u202e")
    monkeypatch.setattr("flattest.cli.status.MANY", many)
    root = ["--store", str(store.root)]
    assert main(["status", *root]) == 0
    assert main(["show", store.runs()[0].key, *root]) == 0
    assert main(["show", "\x1b[2J@0", *root]) == 2
    out, err = capsys.readouterr()
    assert "␛]0;owned␇" in out
    assert not set("\x1b\x07\x9b\u202e") & set(out + err)


HOSTILE = {
    "a huge seed": ("spec.json", {"seed": 2**64 - 1}),
    "a huge step": ("record.json", {"step": 2**63}),
    "text for a number": ("record.json", {"seconds": "long"}),
    "a number for text": ("spec.json", {"label": 7}),
    "another run": ("spec.json", {"key": "0" * 20}),
    "no object": ("record.json", None),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_one_hostile_run_is_one_broken_row(store, what, tmp_path, capsys):
    name, changes = HOSTILE[what]
    keys = [finished(store, seed) for seed in range(2)]
    path = store.folder(keys[0]) / name
    if changes is None:
        path.write_text("[1]")
    else:
        write_sealed(path, msgspec.json.decode(path.read_bytes()) | changes)
    for _ in range(2):
        status = {run.key: run.status for run in Store.open(store.root).runs()}
        assert status == {keys[0]: "broken", keys[1]: "finished"}
        for file in store.root.glob("index.sqlite*"):
            file.unlink()
    assert main(["status", "paper/fig1", "--store", str(store.root)]) == 0
    assert main(["report", "--store", str(store.root), "--page", str(tmp_path / "p.html")]) == 0


@pytest.mark.parametrize(
    "change", ["seed = 'x'", "step = -1", "label = x'ff00'", "progress = 'half'"]
)
def test_a_row_of_the_index_that_cannot_be_one_is_made_anew_from_its_folder(store, change):
    key = finished(store)
    before = store.run(key)
    with store.index.connection() as db:
        db.execute(f"UPDATE runs SET {change}")
    assert Store.open(store.root).run(key) == msgspec.structs.replace(before, host=None)


def test_a_row_of_the_index_that_says_otherwise_than_its_files_is_not_believed(store):
    key = finished(store)
    before = store.run(key)
    with store.index.connection() as db:
        db.execute("UPDATE runs SET label = 'paper/fig2', seed = 8, seconds = 1e9")
    assert store.run(key) == before


def test_a_folder_whose_name_is_no_text_is_a_broken_row(store):
    folder = store.root / "runs" / os.fsdecode(b"\xff\xfe")
    folder.mkdir()
    (folder / "spec.json").write_bytes((store.folder(finished(store)) / "spec.json").read_bytes())
    runs = Store.open(store.root).runs()
    assert sorted(run.status for run in runs) == ["broken", "finished"]
    print_json(runs)


def test_a_seed_that_the_index_cannot_hold_is_refused(store):
    with pytest.raises(FlattestError, match="seeds below 2\\^63"):
        store.add(Spec(), 2**63, "paper/fig1")


def stretch(store, key, step):
    """Work on a run up to a step, interrupted there."""
    with store.lease(key) as lease:
        lease.progress(0.5, step, {})
        raise KeyboardInterrupt


def test_the_provenance_of_every_stretch_is_kept_and_shown(store, monkeypatch, capsys):
    key = store.add(Spec(), 0, "paper/fig1")
    here = provenance()
    elsewhere = msgspec.structs.replace(here, machine="another")

    for made, step in ((here, 10), (here, 20), (elsewhere, 30)):
        monkeypatch.setattr("flattest.runs.lease.provenance", lambda made=made: made)
        with pytest.raises(KeyboardInterrupt):
            stretch(store, key, step)
    monkeypatch.setattr("flattest.runs.lease.provenance", lambda: here)
    with store.lease(key) as lease:
        lease.finish(Run(series={}, step=40))
    run = store.run(key)
    assert run.provenance() == here
    assert [(s.until, s.provenance) for s in run.stretches()] == [(20, here), (30, elsewhere)]
    capsys.readouterr()
    main(["status", "--store", str(store.root)])
    assert "It was begun on another kind of machine." in " ".join(capsys.readouterr().out.split())
    main(["show", key, "--store", str(store.root)])
    shown = capsys.readouterr().out
    assert '"earlier stretches"' in shown
    assert '"machine": "another"' in shown


@pytest.mark.parametrize(
    ("field", "value", "moved"),
    [("commit", "another", False), ("vectors", "avx512f", True), ("vectors", "", False)],
)
def test_another_kind_of_machine_is_said_in_a_runs_sentence(
    store, monkeypatch, field, value, moved
):
    """Records of before vector instructions were noted do not tell the kind."""
    key = store.add(Spec(), 0, "paper/fig1")
    before = msgspec.structs.replace(provenance(), **{field: value})
    monkeypatch.setattr("flattest.runs.lease.provenance", lambda: before)
    with pytest.raises(KeyboardInterrupt):
        stretch(store, key, 10)
    monkeypatch.setattr("flattest.runs.lease.provenance", provenance)
    with store.lease(key) as lease:
        lease.finish(Run(series={}, step=40, sentence="Done."))
    said = "Done. It was begun on another kind of machine." if moved else "Done."
    assert store.run(key).sentence == said


def test_a_first_listing_reads_spec_and_record_of_a_run_once(store, monkeypatch):
    """An index that was deleted is made from the folders."""
    for seed in range(3):
        finished(store, seed=seed)
    (store.root / "index.sqlite").unlink()
    read, real = [], folder.read_sealed
    monkeypatch.setattr(
        folder, "read_sealed", lambda path, kind: read.append(path) or real(path, kind)
    )
    assert len(Store.open(store.root).runs()) == 3
    assert sorted(path.name for path in read) == ["record.json"] * 3 + ["spec.json"] * 3


def test_a_run_whose_results_are_broken_is_given_again_from_the_start(store):
    key = finished(store)
    truncate(store.folder(key) / "series.npz")
    with store.lease(key) as lease:
        lease.finish(Run(series={"epoch": [7]}))
    assert store.run(key).status == "finished"
    np.testing.assert_array_equal(store.run(key).series()["epoch"], [7])


def test_results_that_may_not_be_read_are_not_damaged_and_not_computed_again(store, monkeypatch):
    key = finished(store)
    read = files.opened

    def refuse(path):
        if path.name == "series.npz":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read(path)

    monkeypatch.setattr(files, "opened", refuse)
    assert "series.npz: Permission denied; ask its owner" in store.run(key).examined().sentence
    with pytest.raises(StoreError, match="Permission denied"):
        store.lease(key)
    monkeypatch.undo()
    assert store.run(key) == store.run(key).examined()
    assert store.index.row(key).owner is None


@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_asking_again_repairs_a_spec_and_keeps_the_result(store, damage):
    key = finished(store, seed=4)
    damage(store.folder(key) / "spec.json")
    assert store.run(key).status == "broken"
    store.add(Spec(), 4, "paper/fig1")
    assert store.run(key).status == "finished"


def test_a_stray_folder_is_listed_as_broken_and_can_be_asked_for(store):
    key = run_key(Spec(), 5)
    store.folder(key).mkdir()
    assert Store.open(store.root).runs() == []
    (store.folder(key) / "spec.json").write_bytes(b"{")
    (stray,) = Store.open(store.root).runs()
    assert (stray.key, stray.status) == (key, "broken")
    assert Store.open(store.root).find(key[:6]) == stray
    store.add(Spec(), 5, "paper/fig1")
    assert [(run.seed, run.status) for run in store.runs()] == [(5, "pending")]


def test_a_run_of_a_newer_schema_is_not_overwritten(store):
    key = finished(store)
    newer(store.folder(key) / "spec.json")
    with pytest.raises(FlattestError, match="schema 99"):
        store.lease(key)


# The index


@pytest.mark.parametrize("way", [Store.open, Store.create])
def test_a_deleted_index_is_rebuilt_from_the_folders(store, way):
    keys = {finished(store, seed=0), finished(store, seed=1), store.add(Spec(), 2, "paper/fig1")}
    before = {run.key: run for run in store.runs()}
    for file in store.root.glob("index.sqlite*"):
        file.unlink()
    after = {run.key: run for run in way(store.root).runs()}
    assert set(after) == keys
    for key in keys:
        for field in ("label", "seed", "status", "seconds", "progress"):
            assert getattr(after[key], field) == getattr(before[key], field)


def test_runs_of_a_deleted_index_are_listed_at_once_by_label_and_seed(store):
    labels = ("paper/b", "paper/a")
    for seed, label in enumerate(labels):
        finished(store, seed=seed, label=label)
    (store.root / "index.sqlite").unlink()
    assert [run.label for run in Store.open(store.root).runs()] == sorted(labels)


@pytest.mark.parametrize(
    "use",
    [
        lambda store, key: store.run(key),
        lambda store, key: store.run_of(Spec(), 0),
        lambda store, key: store.lease(key) is None and store.index.row(key),
        lambda store, key: store.add(Spec(), 0, "paper/fig1") and store.index.row(key),
        lambda store, key: store.find(key[:6]),
    ],
)
def test_a_run_that_the_index_lacks_is_found_whoever_asks_first(store, use):
    key = finished(store)
    (store.root / "index.sqlite").unlink()
    assert use(Store.open(store.root), key).status == "finished"


def test_a_row_that_cannot_be_one_keeps_nobody_from_working_on_its_run(store):
    key = store.add(Spec(), 0, "paper/fig1")
    with store.index.connection() as db:
        db.execute("UPDATE runs SET seed = 'x'")
    assert store.lease(key) is not None


def test_an_index_deleted_while_in_use_is_missed_until_the_store_is_opened_again(store):
    key = finished(store)
    (store.root / "index.sqlite").unlink()
    with pytest.raises(StoreError, match="deleted while in use; `flattest status` rebuilds it"):
        store.runs()
    assert not (store.root / "index.sqlite").exists()
    Store.open(store.root)
    assert store.run(key).status == "finished"


def test_the_log_of_a_deleted_index_is_not_replayed_into_the_new_one(store):
    """The log that a killed process leaves: a copy of it while a connection is open."""
    path = store.root / "index.sqlite"
    log = store.root / "index.sqlite-wal"
    key = finished(store)
    with store.index.connection() as db:
        db.execute("UPDATE runs SET label = 'stale'")
        left = log.read_bytes()
    path.unlink()
    log.write_bytes(left)
    assert Store.open(store.root).run(key).label == "paper/fig1"


def test_an_index_that_another_process_made_meanwhile_keeps_its_log(store):
    path = store.root / "index.sqlite"
    with store.index.connection() as db:
        db.execute("INSERT INTO runs (key, label, seed, created) VALUES ('k', 'in the log', 0, 0)")
        index.Index.create(path)
        assert (store.root / "index.sqlite-wal").stat().st_size > 0
    assert store.index.row("k").label == "in the log"


def test_a_run_folder_copied_from_another_store_is_adopted(store, tmp_path):
    key = finished(store)
    other = Store.create(tmp_path / "other")
    store.folder(key).rename(other.folder(key))
    assert Store.open(other.root).run(key).status == "finished"


@pytest.mark.parametrize(("schema", "age"), [(0, "older"), (99, "newer")])
def test_a_store_of_another_schema_is_refused_untouched(store, schema, age):
    path = store.root / "index.sqlite"
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version={schema}")
    db.close()
    before = path.read_bytes()
    for way in (Store.open, Store.create):
        with pytest.raises(FlattestError, match=f"schema {schema}, from an? {age} flattest"):
            way(store.root)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"x" * 4096),
        lambda path: os.truncate(path, path.stat().st_size - 4096),
        lambda path: os.truncate(path, 100),
    ],
)
def test_a_damaged_index_is_refused_with_the_advice_to_delete_it_which_helps(store, damage):
    key = finished(store)
    damage(store.root / "index.sqlite")
    for way in (Store.open, Store.create):
        with pytest.raises(StoreError, match="delete it, with index.sqlite-wal and .*-shm"):
            way(store.root).runs()
    (store.root / "index.sqlite").unlink()
    assert Store.open(store.root).run(key).status == "finished"


def test_a_store_that_is_not_there_or_cannot_be_made_is_refused(tmp_path):
    with pytest.raises(FlattestError, match="no store"):
        Store.open(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(FlattestError, match="Not a directory; see .* with --store"):
        Store.create(tmp_path / "file" / "store")


def test_a_store_on_a_read_only_disk_can_be_read(store, monkeypatch):
    key = finished(store)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    locked = Store.open(store.root)
    assert locked.run(key).status == "finished"
    with pytest.raises(FlattestError, match="readonly"):
        locked.add(Spec(), 1, "paper/fig1")


def test_a_full_disk_ends_with_a_sentence_and_the_run_is_not_done(store):
    key = store.add(Spec(), 0, "paper/fig1")

    def fill():
        with store.lease(key) as lease, files_at_most(200_000):
            lease.finish(Run(series={"epoch": np.zeros(100_000)}))

    with pytest.raises(FlattestError, match="Cannot write"):
        fill()
    assert store.run(key).status == "failed"
    assert not list(store.folder(key).glob("**/*.tmp"))


@contextlib.contextmanager
def files_at_most(size):
    """The kernel refuses to write beyond `size`, as it does on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("size", [0, 100, 1_000, 4_095, 4_096, 6_000, 8_192, 10_000, 12_288])
def test_a_disk_that_is_full_when_the_index_is_made_leaves_none_or_a_sound_one(tmp_path, size):
    with files_at_most(size), contextlib.suppress(StoreError):
        Store.create(tmp_path / "store")
    left = set(os.listdir(tmp_path / "store"))
    assert left <= {"runs", "index.sqlite", "index.sqlite-wal", "index.sqlite-shm"}
    assert finished(Store.create(tmp_path / "store"))


def test_temporary_files_of_the_dead_are_removed_and_those_of_the_living_are_not(store):
    key = store.add(Spec(), 0, "paper/fig1")
    old, new = (store.folder(key) / f".series.npz.{name}.tmp" for name in ("old", "new"))
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    left_by_an_index = store.root / ".index.sqlite.x.tmp-wal"
    left_by_an_index.touch()
    os.utime(left_by_an_index, (0, 0))
    with store.lease(key) as lease:
        lease.finish(Run(series={}))
    Store.create(store.root)
    assert (old.exists(), new.exists(), left_by_an_index.exists()) == (False, True, False)


# Many processes


def stop_heart(store, lease):
    """The last sign of life was long ago."""
    assert store.index.change(lease.key, lease.owner, heartbeat=0.0)


def test_a_run_in_hand_is_not_given_to_another_until_its_heart_stops(store):
    key = store.add(Spec(), 0, "paper/fig1")
    lease = store.lease(key)
    with lease:
        assert store.lease(key) is None
        stop_heart(store, lease)
        second = store.lease(key)
        assert second is not None
        with pytest.raises(LeaseLost, match="no longer ours"):
            lease.progress(0.5, 1, {})
    with second:
        second.finish(Run(series={"epoch": [1]}))
    assert store.run(key).status == "finished"


def test_the_loser_of_a_lease_does_not_overwrite_the_winners_record(store):
    key = store.add(Spec(), 0, "paper/fig1")
    with store.lease(key) as loser:
        stop_heart(store, loser)
        with store.lease(key) as winner:
            winner.finish(Run(series={"epoch": [1]}))
        with pytest.raises(LeaseLost):
            loser.finish(Run(series={"epoch": [2]}))
    assert store.run(key).status == "finished"
    np.testing.assert_array_equal(store.run(key).series()["epoch"], [1])


def test_a_sign_of_life_from_the_future_is_none(store):
    """The clock was set back: a lease from before would be held until it has caught up."""
    key = store.add(Spec(), 0, "paper/fig1")
    with store.lease(key) as lease:
        store.index.change(key, lease.owner, heartbeat=time.time() + 3600)
        assert not store.index.row(key).held
        lease._show_life()
        assert store.index.row(key).held
        lease.finish(Run(series={}))


def test_a_clock_that_is_set_back_makes_no_run_take_negative_time(store, monkeypatch):
    key, now = store.add(Spec(), 0, "paper/fig1"), time.time
    with store.lease(key) as lease:
        monkeypatch.setattr(time, "time", lambda: now() - 1e6)
        lease.finish(Run(series={}))
    assert 0 <= store.run(key).seconds < 60


def test_processes_of_another_namespace_are_not_looked_for_among_ours(store, monkeypatch):
    """Two containers may have one host name; the number of a live process there is none here."""
    key = store.add(Spec(), 0, "paper/fig1")
    assert str(os.stat("/proc/self/ns/pid").st_ino) in machine.place()
    with store.lease(key) as lease:
        store.index.change(key, lease.owner, pid=2**22 + 1)
        assert not store.index.row(key).held
        monkeypatch.setattr(index, "place", lambda: machine.place().replace("-", "-1"))
        assert store.index.row(key).held
        assert store.lease(key) is None


@pytest.mark.parametrize("name", ["spec.json", "record.json", "series.npz", "params.safetensors"])
def test_a_pipe_in_the_place_of_a_file_is_a_broken_run_and_keeps_nobody_waiting(store, name):
    key = finished(store)
    (store.folder(key) / name).unlink()
    os.mkfifo(store.folder(key) / name)
    (run,) = Store.open(store.root).runs()
    assert run.examined().status == "broken"
    assert name in run.examined().sentence


def test_a_pipe_among_the_checkpoints_is_passed_over(tmp_path):
    os.mkfifo(tmp_path / f"000001-{32 * '0'}.safetensors")
    saves = Checkpoints(tmp_path, {})
    assert saves.load() is None
    assert "Not a file" in saves.notes[0]


def test_a_lease_shows_signs_of_life(store):
    key = store.add(Spec(), 0, "paper/fig1")
    with store.lease(key, heartbeat=0.01) as lease:
        first = store.index.row(key).heartbeat
        deadline = time.time() + 10
        while store.index.row(key).heartbeat == first and time.time() < deadline:
            time.sleep(0.01)
        assert store.index.row(key).heartbeat > first
        lease.finish(Run(series={}))


KILLED = """
import os, signal, sys, time
from flattest.runs.store import Store
store = Store.create(sys.argv[1])
lease = store.lease(sys.argv[2])
with lease:
    time.sleep(0.3)
    lease.progress(0.5, 5, {"epoch": [0, 1]})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_its_run_interrupted_and_free(store):
    key = store.add(Spec(), 0, "paper/fig1")
    environment = os.environ | {"PYTHONPATH": SOURCE}
    command = [sys.executable, "-c", KILLED, str(store.root), key]
    assert subprocess.run(command, env=environment, timeout=60).returncode == -9
    run = store.run(key)
    assert (run.status, run.progress) == ("interrupted", 0.5)
    np.testing.assert_array_equal(run.series()["epoch"], [0, 1])
    assert run.seconds >= 0.3
    with store.lease(key) as lease:
        lease.finish(Run(series={}))
    assert store.run(key).seconds > run.seconds


def test_the_time_of_a_run_is_that_of_the_work_it_goes_on_from(store):
    """Of an interrupted stretch the part up to its last progress counts, once."""
    key, start = store.add(Spec(), 0, "paper/fig1"), time.time()

    def interrupted():
        with store.lease(key) as lease:
            for _ in range(2):
                time.sleep(0.1)
                lease.progress(0.5, 1, {})
            time.sleep(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert 0.2 <= store.run(key).seconds <= time.time() - start - 1
    with store.lease(key) as lease:
        time.sleep(0.1)
        lease.finish(Run(series={}))
    assert 0.3 <= store.run(key).seconds <= time.time() - start - 1


def test_a_broken_run_begins_anew_and_so_does_its_time(store):
    key = store.add(Spec(), 0, "paper/fig1")
    with store.lease(key) as lease:
        time.sleep(0.3)
        lease.finish(Run(series={"epoch": [0]}))
    (store.folder(key) / "series.npz").unlink()
    again = time.time()
    with store.lease(key) as lease:
        lease.finish(Run(series={"epoch": [0]}))
    assert store.run(key).seconds <= time.time() - again


@pytest.mark.parametrize("error", [KeyboardInterrupt, FlattestError])
def test_who_lost_a_run_does_not_touch_the_result_of_who_took_it_over(store, error):
    key = store.add(Spec(), 0, "paper/fig1")

    def overtaken():
        with store.lease(key) as lease:
            store.index.change(key, lease.owner, owner=None, heartbeat=None)
            with store.lease(key) as other:
                other.finish(Run(series={"epoch": [7]}))
            raise error

    with pytest.raises(error):
        overtaken()
    assert read_record(store.folder(key)).status == "finished"
    assert store.run(key).status == "finished"


def test_a_run_that_was_killed_between_its_record_and_the_index_is_done(store):
    key = finished(store)
    db = sqlite3.connect(store.root / "index.sqlite")
    db.execute("UPDATE runs SET status = 'running', owner = 'gone', pid = 0, heartbeat = 0")
    db.commit()
    db.close()
    assert store.lease(key) is None
    assert store.run(key).status == "finished"


def test_processes_that_share_a_store_do_every_run_once(tmp_path):
    keys = [run_key(Square(), seed) for seed in range(12)]
    context = multiprocessing.get_context("spawn")
    wins = context.Queue()
    workers = [
        context.Process(target=do_what_is_free, args=(tmp_path / "s", 12, wins)) for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert sorted(wins.get(timeout=5) for _ in keys) == sorted(keys)
    assert wins.empty()
    assert [run.status for run in Store.open(tmp_path / "s").runs()] == ["finished"] * 12
    assert not list((tmp_path / "s").glob("**/*.tmp"))


def test_the_commit_of_a_foreign_checkout_is_not_ours(tmp_path):
    from flattest.runs.provenance import commit

    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    stranger = tmp_path / "pkg" / "store" / "provenance.py"
    stranger.parent.mkdir(parents=True)
    stranger.write_text("")
    assert commit(stranger) == ""
