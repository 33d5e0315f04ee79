"""The page of a store."""

import base64
import gzip
import json
import re

import numpy as np

from flattest.experiments import experiment
from flattest.report import gather, render
from flattest.store import Store

DATA = re.compile(r'id="data">([^<]*)</script>')


def finished(store, name, series, seed=0):
    """A finished run of an experiment's quick variant with the series given."""
    task = experiment(name).quick.task
    with store.claim(store.add(task, seed, name)) as claim:
        claim.finish(series=series)


def curves(epochs=50):
    epoch = np.arange(epochs, dtype=float)
    names = ("train_loss", "train_error", "test_loss", "test_error", "sharpness", "bound")
    return {"epoch": epoch} | {name: np.full(epochs, 0.5) for name in names}


def unpacked(document):
    return json.loads(gzip.decompress(base64.b64decode(DATA.search(document)[1])))


def test_the_page_carries_the_runs_and_their_verdicts(tmp_path):
    store = Store.create(tmp_path / "store")
    finished(store, "wen2023/fig1a", curves())
    page = unpacked(render(gather(store)))
    (panel,) = page["panels"]
    assert panel["figure"] == "Figure 1a"
    assert panel["runs"][0]["series"]["test_error"][-1] == 0.5
    assert [v["met"] for v in panel["verdicts"]] == [False]


def test_the_page_names_no_other_host_and_no_other_file(tmp_path):
    document = render(gather(Store.create(tmp_path / "store")))
    assert not re.search(r'<(script|link|img)[^>]*\b(src|href)="(?!data:)', document)


def test_hostile_text_in_a_store_stays_out_of_the_markup(tmp_path):
    store = Store.create(tmp_path / "store")
    store.add(experiment("wen2023/fig1a").quick.task, 999, "<script>alert(1)</script>")
    assert "alert(1)" not in render(gather(store))


def test_a_truncated_series_is_a_marked_broken_entry_beside_the_others(tmp_path):
    store = Store.create(tmp_path / "store")
    for seed in (0, 1):
        finished(store, "wen2023/fig1a", curves(), seed)
    path = store.runs()[0].folder / "series.npz"
    path.write_bytes(path.read_bytes()[:40])
    (panel,) = gather(store).panels
    assert sorted(run.status for run in panel.runs) == ["broken", "finished"]


def test_long_series_are_thinned_with_both_ends_kept(tmp_path):
    store = Store.create(tmp_path / "store")
    finished(store, "wen2023/fig1a", curves(300_000))
    (panel,) = gather(store).panels
    epoch = panel.runs[0].series["epoch"]
    assert (epoch[0], epoch[-1]) == (0, 300_000)  # to five digits
    assert len(epoch) < 200_000
