"""A store that the engine of version 2 wrote, whose numbers are those of version 3.

`version_2` holds Figure 3 of wen2023 (quick, seed 0) and a tiny training, seed 0 finished and seed
1 interrupted, as commit 0c544f9 left them.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import flattest as ft
from flattest.cli._dispatch import main
from flattest.experiments.expectations import AtMost
from flattest.experiments.experiment import Experiment, Variant
from flattest.experiments.registry import experiment
from flattest.experiments.training import Training
from flattest.report.reader import gather
from flattest.runs.plan import plan
from flattest.runs.results import assess, find_runs
from flattest.runs.run import run_experiments
from flattest.runs.store import Store

COMPUTED, TRAINED, INTERRUPTED = (
    "477f5f045c9afef5b595",
    "ddc75c5895f945b9f81e",
    "46816f75c897a4d81e8c",
)
TASK = Training(
    distribution=ft.Xor(4),
    n=6,
    model=ft.MLP(3, bias=True),
    phases=(ft.sam(0.02, 0.1, epochs=40),),
    log=ft.Log(points=4, snapshots=2),
    test_size=16,
)


def own(seeds):
    variant = Variant(TASK, seeds, (AtMost(series="train_loss", value=10.0),))
    return Experiment(
        name="own/xor", figure="none", statement="The loss falls.", quick=variant, full=variant
    )


@pytest.fixture
def store(tmp_path):
    shutil.copytree(Path(__file__).with_name("version_2"), tmp_path / "store")
    return Store.open(tmp_path / "store")


def test_its_runs_are_listed_shown_and_exported(store, capsys):
    root = ["--store", str(store.root)]
    assert main(["status", "--json", *root]) == 0
    status = {run["key"]: run["status"] for run in json.loads(capsys.readouterr().out)}
    expected = {COMPUTED: "finished", TRAINED: "finished", INTERRUPTED: "interrupted"}
    assert status == expected
    assert main(["show", "fig3@0", "--json", *root]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["key"] == COMPUTED
    assert main(["export", "--out", "export", *root]) == 0
    assert [run.key for run in find_runs(store, ["fig3"])] == [COMPUTED]


def test_its_runs_are_on_the_page(store):
    panels = {(panel.name, panel.variant): panel for panel in gather(store).outline.panels}
    panel = panels["wen2023/fig3", "full"]
    assert panel.runs == [COMPUTED]
    assert all(verdict.met for verdict in panel.verdicts)


def test_its_runs_are_not_done_again(store):
    before = {run.key: run for run in store.runs()}
    fig3 = experiment("fig3")
    assert plan([fig3, own(1)], "quick", store) == []
    assert all(a.met for a in run_experiments([fig3, own(1)], "quick", store, workers=1))
    assert {run.key: run for run in store.runs()} == before


def test_a_run_done_again_has_its_numbers(store, tmp_path):
    """Version 3 changed names and layout only; another machine may round otherwise."""
    stored, again = store.run(TRAINED).run(), Store.create(tmp_path / "anew")
    run_experiments([own(1)], "quick", again, workers=1)
    run = again.runs()[0].run()
    for old, new in ((stored.series, run.series), (stored.params, run.params)):
        assert set(old) == set(new)
        for name, values in old.items():
            np.testing.assert_allclose(new[name], values, rtol=1e-4, atol=1e-6)


def test_its_interrupted_training_begins_anew_under_its_key_and_says_so(store):
    assert [job.key for job in plan([own(2)], "quick", store)] == [INTERRUPTED]
    (assessment,) = run_experiments([own(2)], "quick", store, workers=1)
    assert assessment.met
    assert [run.key for run in assessment.runs] == [TRAINED, INTERRUPTED]
    assert "version 2 of the engine wrote it" in store.run(INTERRUPTED).notes()["note 1"]
    assert len(store.runs()) == 3


def test_a_run_of_version_2_that_broke_is_done_again_in_its_place(store):
    (store.folder(TRAINED) / "series.npz").unlink()
    (store.folder(TRAINED) / "spec.json").write_text("{")
    run_experiments([own(1)], "quick", store, workers=1)
    assert assess(own(1), "quick", store).met
    spec = json.loads((store.folder(TRAINED) / "spec.json").read_text())
    assert (spec["key"], spec["engine"]) == (TRAINED, 2)
    assert len(store.runs()) == 3


def test_an_index_that_is_lost_is_rebuilt_from_its_folders(store):
    before = store.runs()
    for file in store.root.glob("index.sqlite*"):
        file.unlink()
    after = Store.open(store.root).runs()
    assert [(run.key, run.label, run.status) for run in after] == [
        (run.key, run.label, run.status) for run in before
    ]
