"""What a store was asked by files and functions of one's own is found again by every command."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from flattest.experiments.registry import experiment
from flattest.runs.questions import ask_own, asked_for, questions
from flattest.runs.store import Store
from support.shell import flattest
from support.stores import SETUP, judged, swept


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A store with a setup that was judged and a sweep, whose runs were done before."""
    store = Store.create(tmp_path_factory.mktemp("own") / "store")
    judged(SETUP, store)
    swept(SETUP, store)
    return store.root


@pytest.fixture
def shell(root, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: flattest(capsys, *arguments, "--store", str(root))


def test_a_judgement_keeps_its_setup_its_runs_and_its_answer(root):
    (found,) = [q for q in questions(Store.open(root)) if q.kind == "judgement"]
    assert found.name == "judge/tiny"
    assert found.about["generalizes"] == SETUP.generalizes
    assert {role: len(keys) for role, keys in found.runs.items()} == {
        "algorithm": 2,
        "challenge": 1,
    }
    stored = {run.key for run in Store.open(root).runs()}
    assert {key for keys in found.runs.values() for key in keys} <= stored
    assert found.answer["flattest_generalize"]["grade"] == "refuted"


def test_a_sweep_keeps_its_diagram(root):
    (found,) = [q for q in questions(Store.open(root)) if q.kind == "diagram"]
    assert found.name == "sweep/tiny-n-width"
    assert np.shape(found.answer["error"]) == (2, 2)


def test_more_seeds_are_the_same_question_and_a_changed_setup_another(tmp_path):
    store = Store.create(tmp_path / "store")
    more = msgspec.structs.replace(SETUP, seeds=3)
    other = msgspec.structs.replace(SETUP, n=7, challenge=None)
    for setup in (SETUP, more):
        judged(setup, store)
    (found,) = questions(store)
    assert len(found.runs["algorithm"]) == 3
    judged(other, store)
    assert [q.about["n"] for q in questions(store)] == [7, 8]


@pytest.mark.parametrize("name", ["judge/tiny-algorithm", "tiny-algorithm", "judge/*"])
def test_summary_export_and_status_find_what_was_judged(shell, name):
    code, out, _ = shell("summary", name, "--json")
    assert code == 0
    assert json.loads(out)[0]["experiment"] == "judge/tiny-algorithm"
    assert "2 finished" in shell("status", "judge/tiny-algorithm")[1]
    assert shell("export", name, "--out", "csv")[0] == 0
    assert "judge/tiny-algorithm" in Path("csv/runs.csv").read_text()


def test_show_finds_a_run_of_a_setup_by_its_seed(shell):
    assert json.loads(shell("show", "tiny-algorithm@1", "--json")[1])["run"]["seed"] == 1


def test_plot_draws_curves_of_what_was_judged_and_the_diagram_of_a_sweep(shell):
    for name, figure in (
        ("judge/tiny-algorithm", "judge/tiny-algorithm"),
        ("sweep/tiny-n-width", "sweep/tiny-n-width"),
        ("sweep/*", "sweep/tiny-n-width"),
    ):
        code, out, _ = shell("plot", name)
        assert code == 0
        assert out.split() == [f"out/figures/{figure}.{kind}" for kind in ("png", "svg", "pdf")]


def test_an_experiment_of_a_file_is_kept_and_one_of_a_paper_is_not(tmp_path):
    store = Store.create(tmp_path / "store")
    paper = experiment("fig4b")
    mine = msgspec.structs.replace(paper, name="mine/fig4b")
    ask_own(store, [paper, mine], "quick")
    (found,) = questions(store)
    assert found.name == "mine/fig4b"
    assert asked_for(store, "mine/*") == [mine]
    assert asked_for(store, "fig4b") == [paper, mine]


def test_a_question_that_cannot_be_read_says_so(tmp_path):
    store = Store.create(tmp_path / "store")
    (store.root / "questions").mkdir()
    (store.root / "questions" / "x.json").write_text("<script>")
    (found,) = questions(store)
    assert "x.json" in found.problem
    assert asked_for(store, "fig4b") == [experiment("fig4b")]


def test_a_question_of_which_a_bit_has_flipped_is_said_to_be_damaged(tmp_path):
    store = Store.create(tmp_path / "store")
    judged(SETUP, store)
    (path,) = (store.root / "questions").iterdir()
    path.write_bytes(path.read_bytes().replace(b'"tiny"', b'"tinx"'))
    (found,) = questions(store)
    assert "its digest does not match" in found.problem
