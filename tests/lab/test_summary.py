"""What the runs came to."""

import msgspec
import numpy as np
import pytest

from flattest.experiments.registry import experiment
from flattest.lab.summary import markdown, summarize
from flattest.runs.store import Store
from flattest.training.run import Run
from support.stores import rot


def store_with(tmp_path, errors, status="finished"):
    store = Store.create(tmp_path / "store")
    task = experiment("wen2023/fig1a").quick.task
    for seed, error in enumerate(errors):
        series = {"epoch": np.arange(20.0), "test_error": np.linspace(0.5, error, 20)}
        with store.lease(store.add(task, seed, "wen2023/fig1a:quick")) as lease:
            lease.finish(Run(series=series, status=status, sentence="It ended."))
    return store


def test_a_summary_is_the_median_and_the_range_over_seeds(tmp_path):
    store = store_with(tmp_path, [0.0, 0.3])
    (found,) = summarize([experiment("wen2023/fig1a")], "quick", store)
    last_tenth = [np.median(np.linspace(0.5, error, 20)[-2:]) for error in (0.0, 0.3)]
    spread = found.columns["test_error"]
    assert (spread.low, spread.high) == pytest.approx(last_tenth)
    assert spread.median == pytest.approx(np.mean(last_tenth))
    assert not found.met


def test_the_table_says_what_was_not_as_expected_and_what_diverged(tmp_path):
    table = markdown(
        summarize([experiment("wen2023/fig1a")], "quick", store_with(tmp_path, [0.0], "diverged"))
    )
    assert "1 (1 diverged)" in table
    assert "no: test_error" in table


def test_a_run_whose_results_rot_is_counted_and_left_out(tmp_path):
    store = store_with(tmp_path, [0.0, 0.3])
    rot(store.runs()[1].folder / "series.npz")
    (found,) = summarize([experiment("wen2023/fig1a")], "quick", store)
    assert found.seeds == 1
    assert found.columns["test_error"].high < 0.1
    assert "1 (1 broken)" in markdown([found])


def test_experiments_without_runs_are_left_out(tmp_path):
    store = store_with(tmp_path, [0.0])
    assert summarize([experiment("wen2023/fig1b")], "quick", store) == []


def test_a_task_with_columns_of_its_own_gets_a_table_of_its_own(tmp_path):
    """Few experiments stand side by side, read downwards."""
    store = store_with(tmp_path, [0.0])
    finish(store, experiment("wen2023/fig4a"), {"test_error": np.zeros(20)})
    scaling = experiment("vardhan2026/scaling-relu")
    n = np.array([10.0, 100.0])
    series = {"n": n, "good": n, "bad": n**2, "gap": n, "good_excess_loss": 1 / n}
    finish(store, scaling, series | {"bad_excess_loss": np.nan * n})
    chosen = [experiment("wen2023/fig1a"), experiment("wen2023/fig4a"), scaling]
    training, own = markdown(summarize(chosen, "quick", store)).split("\n\n")
    assert training.startswith("| panel | fig1a | fig4a |\n| --- | --- | --- |\n| statement | ")
    assert "\n| test error | 0.01316 | 0 |\n" in training
    assert own.splitlines()[:2] == ["| panel | scaling-relu |", "| --- | --- |"]
    assert "| largest n | 100 |\n| good, expected | 0 |\n| good | 1 |" in own
    assert "| excess loss, good | -1 |\n| excess loss, bad | – |" in own


def test_many_experiments_have_a_row_each(tmp_path):
    store = store_with(tmp_path, [0.0])
    names = ("wen2023/fig1b", "wen2023/fig4a", "wen2023/fig4b")
    for name in names:
        finish(store, experiment(name), {"test_error": np.zeros(20)})
    chosen = [experiment(name) for name in ("wen2023/fig1a", *names)]
    head, rule, *rows = markdown(summarize(chosen, "quick", store)).splitlines()
    assert "| test error |" in head
    assert [row.split(" | ")[0] for row in rows] == ["| fig1a", "| fig1b", "| fig4a", "| fig4b"]
    assert {line.count("|") for line in (head, rule, *rows)} == {10}


def test_a_statement_that_all_share_is_said_once(tmp_path):
    (found,) = summarize([experiment("wen2023/fig1a")], "quick", store_with(tmp_path, [0.0]))
    table = markdown([found, msgspec.structs.replace(found, experiment="wen2023/other")])
    assert table.startswith(f"*{found.statement}*\n\n| panel | fig1a | other |\n")
    assert table.count(found.statement) == 1


def finish(store, experiment, series):
    key = store.add(experiment.quick.task, 0, f"{experiment.name}:quick")
    with store.lease(key) as lease:
        lease.finish(Run(series=series, status="finished", sentence=""))
