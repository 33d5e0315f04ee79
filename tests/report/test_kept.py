"""Kept views make the same page, and whatever is wrong with them is made again from the runs."""

import sqlite3

import numpy as np
import pytest

import flattest as ft
from flattest.experiments.training import Training
from flattest.report import reader
from flattest.report.document import render
from flattest.report.kept import NAME
from flattest.report.reader import gather
from flattest.runs.store import Store
from flattest.training.run import Run

TASK = Training(ft.Xor(6), 12, ft.MLP(8, bias=True), (ft.sam(0.02, 0.1, epochs=9),), test_size=16)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MANY", 2)
    store = Store.create(tmp_path / "store")
    for seed in range(5):
        epoch = np.arange(1.0, 10.0)
        curves = {"epoch": epoch, "train_loss": 1 / (epoch + seed), "sharpness": epoch}
        with store.lease(store.add(TASK, seed, "own/runs")) as lease:
            lease.finish(Run(seed=seed, series=curves))
    return store


def pages_read(monkeypatch):
    """The keys of the runs whose files are read."""
    read, real = [], reader.view_of
    monkeypatch.setattr(reader, "view_of", lambda run, *a: read.append(run.seed) or real(run, *a))
    return read


def test_a_second_page_is_the_same_and_reads_no_run(store, monkeypatch):
    first = render(gather(store))
    read = pages_read(monkeypatch)
    assert render(gather(store)) == first
    assert read == []


def test_a_run_that_changed_is_read_again(store, monkeypatch):
    gather(store)
    changed = store.runs()[3]
    (changed.folder / "series.npz").write_bytes(b"rot")
    read = pages_read(monkeypatch)
    found = gather(store).runs[changed.key]
    assert read == [changed.seed]
    assert found.status == "broken"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE views SET view = replace(view, '1.0', '7.0')",
        "UPDATE views SET view = 3, seal = 'x'",
        "DROP TABLE views",
        "ALTER TABLE views RENAME COLUMN seal TO other",
    ],
)
def test_kept_views_that_were_changed_are_made_again(store, statement):
    first = render(gather(store))
    with sqlite3.connect(store.root / NAME) as db:
        db.execute(statement)
    assert render(gather(store)) == first


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(100)])
def test_a_damaged_file_is_made_again(store, content):
    first = render(gather(store))
    (store.root / NAME).write_bytes(content)
    assert render(gather(store)) == first
    assert render(gather(store)) == first
