"""What the runs came to."""

import numpy as np
import pytest

from flattest.experiments import experiment
from flattest.store import Store
from flattest.summary import markdown, summarize


def store_with(tmp_path, errors, status="finished"):
    store = Store.create(tmp_path / "store")
    task = experiment("wen2023/fig1a").quick.task
    for seed, error in enumerate(errors):
        series = {"epoch": np.arange(20.0), "test_error": np.linspace(0.5, error, 20)}
        with store.claim(store.add(task, seed, "wen2023/fig1a:quick")) as claim:
            claim.finish(series=series, status=status, sentence="It ended.")
    return store


def test_a_summary_is_the_median_and_the_range_over_seeds(tmp_path):
    store = store_with(tmp_path, [0.0, 0.3])
    (found,) = summarize([experiment("wen2023/fig1a")], "quick", store)
    last_tenth = [np.median(np.linspace(0.5, error, 20)[-2:]) for error in (0.0, 0.3)]
    spread = found.measured["test_error"]
    assert (spread.low, spread.high) == pytest.approx(last_tenth)
    assert spread.median == pytest.approx(np.mean(last_tenth))
    assert not found.met


def test_the_table_says_what_was_not_as_expected_and_what_diverged(tmp_path):
    table = markdown(
        summarize([experiment("wen2023/fig1a")], "quick", store_with(tmp_path, [0.0], "diverged"))
    )
    assert "1 (1 diverged)" in table
    assert "no: test_error" in table


def test_experiments_without_runs_are_left_out(tmp_path):
    store = store_with(tmp_path, [0.0])
    assert summarize([experiment("wen2023/fig1b")], "quick", store) == []


def test_a_task_with_measures_of_its_own_gets_a_table_of_its_own(tmp_path):
    store = store_with(tmp_path, [0.0])
    scaling = experiment("vardhan2026/scaling-relu")
    n = np.array([10.0, 100.0])
    series = {"n": n, "good": n, "bad": n**2, "gap": n, "good_excess_loss": 1 / n}
    series["bad_excess_loss"] = np.nan * n
    with store.claim(store.add(scaling.quick.task, 0, "vardhan2026/scaling-relu:quick")) as claim:
        claim.finish(series=series, status="finished", sentence="")
    found = summarize([experiment("wen2023/fig1a"), scaling], "quick", store)
    training, own = markdown(found).split("\n\n")
    assert "| test error |" in training
    assert own.splitlines()[0].endswith("| excess loss, bad | time a run | as expected |")
    assert "| 100 | 0 | 1 | 0.5 | 2 | 0.5 | 1 | -1 | – |" in own
