"""Checking claims: where figures get their numbers, and several processes."""

import json
import multiprocessing
import time

import msgspec
import numpy as np
import pytest

from flattest.errors import FlattestError
from flattest.experiments.expectations import AtLeast
from flattest.experiments.registry import Paper, experiment, papers
from flattest.lab.summary import read_summaries, summarize
from flattest.ledger import figures
from flattest.ledger.claim import get, ledger
from flattest.ledger.figures import RESULTS, NotRun, basis, committed, telling_variants
from flattest.ledger.verify import check, verify
from flattest.runs.store import Store
from support.places import ROOT
from support.stores import curves, finished

FIGURES = [entry for entry in ledger() if entry.evidence == "figure"]


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "store")


def trained(error):
    return curves() | {"test_error": np.full(50, error), "train_loss": np.full(50, 1e-4)}


def test_every_figure_rests_on_experiments_and_nothing_else_does():
    assert [entry for entry in ledger() if entry.experiments] == FIGURES
    for name in (name for entry in FIGURES for name in entry.experiments):
        assert experiment(name).name == name


@pytest.mark.parametrize("entry", FIGURES, ids=lambda entry: entry.id)
def test_a_figure_without_any_run_says_how_to_make_them(entry, monkeypatch):
    monkeypatch.setattr(figures, "committed", lambda: iter(()))
    row = check(entry)
    assert (row.status, row.as_expected, row.verdict) == ("not run", False, None)
    assert f"`flattest run {entry.experiments[0]} --full`" in row.note


def test_a_figure_is_read_from_the_store_first_and_at_full_scale_where_there_is_any(store):
    entry = get("wen2023/table-1/no-bias-algorithm")
    results = papers()["wen2023"].folder / RESULTS
    assert f"from {results}, commit " in check(entry, store).note
    finished(store, "table1/no-bias-algorithm", trained(0.3))
    row = check(entry, store)
    assert (row.status, row.verdict.value) == ("fails", 0.3)
    assert "table1/no-bias-algorithm quick, 1 seed, from the store" in row.note
    for seed in range(2):
        finished(store, "table1/no-bias-algorithm", trained(0.0), seed, "full")
    row = check(entry, store)
    assert row.finding == "holds · (✓) supported (figure, 2 seeds)"
    assert "full, 2 seeds, from the store" in row.note


def test_a_quick_variant_that_expects_less_is_not_evidence(store):
    """Figure 2's quick panels have a fifth of the dimensions, and show nothing by themselves."""
    finished(store, "vardhan2026/fig2-relu", {"certified": np.ones(8)})
    assert basis("vardhan2026/fig2-relu", store).place != "the store"


def test_committed_results_are_named_by_their_path_from_the_working_directory(monkeypatch):
    monkeypatch.chdir(ROOT)
    file = "src/flattest/papers/wen2023/results.json"
    assert f"from {file}, commit " in str(basis("wen2023/fig4b"))
    assert (ROOT / file).is_file()


def test_a_panel_that_shares_its_runs_rests_on_its_own_summary():
    assert basis("wen2023/fig2b").summary.experiment == "wen2023/fig2b"


def test_a_row_says_where_its_runs_were_read(store):
    entry = get("wen2023/table-1/no-bias-algorithm")
    committed_at = basis("table1/no-bias-algorithm").summary.commit[:7]
    assert check(entry, store).place == f"commit {committed_at}"
    finished(store, "table1/no-bias-algorithm", trained(0.0))
    assert check(entry, store).place == "the store"
    assert check(get("wen2023/table-1/bias-flattest"), store).place == ""


def test_committed_results_of_an_engine_with_other_numbers_do_not_count(monkeypatch):
    monkeypatch.setattr(figures, "ENGINE_VERSION", 99)
    assert basis("wen2023/fig4b").summary.engine == 2
    monkeypatch.setattr(figures, "SAME_NUMBERS", ())
    assert not list(committed())
    with pytest.raises(NotRun, match="flattest run wen2023/fig4b --full"):
        basis("wen2023/fig4b")


def test_committed_results_are_of_experiments_that_there_are():
    every = [
        s
        for p in papers().values()
        if (p.folder / RESULTS).is_file()
        for s in read_summaries(p.folder / RESULTS)
    ]
    assert len(every) == len(list(committed()))
    for summary in every:
        e = experiment(summary.experiment)
        assert (summary.figure, summary.statement) == (e.figure, e.statement)


def test_a_summary_is_read_as_it_was_printed(store, tmp_path):
    """JSON has no infinity, which is the value of a seed that diverged."""
    finished(store, "wen2023/fig1a", curves() | {"test_error": np.full(50, np.nan)})
    (summary,) = summarize([experiment("wen2023/fig1a")], "quick", store)
    file = tmp_path / RESULTS
    file.write_bytes(msgspec.json.encode([summary]))
    assert summary.verdicts[0].value == np.inf
    assert read_summaries(file) == (summary,)


def test_damaged_results_are_one_sentence(tmp_path):
    file = tmp_path / RESULTS
    file.write_text(json.dumps([{"verdicts": []}]))
    with pytest.raises(FlattestError, match="results.json: it is damaged"):
        read_summaries(file)


def test_what_a_summary_does_not_have_is_one_sentence():
    found = basis("wen2023/fig4b").summary
    with pytest.raises(FlattestError, match="run of wen2023/fig4b has a norm"):
        found.column("norm")
    with pytest.raises(FlattestError, match="does not have norm at the end"):
        found.verdict(AtLeast(series="norm", value=0))


def test_a_papers_folder_is_that_of_its_package():
    paper = papers()["wen2023"]
    assert isinstance(paper, Paper)
    assert (paper.folder / "experiments.py").is_file()


@pytest.mark.slow
def test_processes_find_what_one_process_finds():
    entries = [get("wen2023/lemma-a.15"), get("wen2023/lemma-a.26")]
    assert list(verify(entries, workers=2)) == [check(entry) for entry in entries]


@pytest.mark.slow
def test_whoever_stops_listening_leaves_no_process_at_work():
    """The second entry takes a minute."""
    entries = [get("wen2023/lemma-a.15"), get("wen2023/theorem-3.1")]
    before = multiprocessing.active_children()
    rows = verify(entries, workers=2)
    next(rows)
    began = time.monotonic()
    rows.close()
    assert time.monotonic() - began < 10
    assert multiprocessing.active_children() == before


def test_quick_runs_of_which_less_is_expected_stand_in_for_no_full_ones():
    assert telling_variants(experiment("wen2023/fig2a")) == ("full",)  # 0.02, and 0.05 for quick
    assert telling_variants(experiment("table1/bias-algorithm")) == ("full", "quick")
