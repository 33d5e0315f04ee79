"""Question 2: its panels differ from wen2023's in one thing, and its predictions came first."""

import io
import json
import os
import re
import runpy
import subprocess
import sys
import tarfile
import tempfile
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.examples import lab
from flattest.experiments.registry import papers
from flattest.lab.summary import read_summaries
from flattest.ledger.figures import RESULTS
from flattest.papers.wen2023.experiments import EXPERIMENTS as PANELS
from flattest.studies.question2 import experiments
from flattest.studies.question2.decides import Scales
from flattest.studies.question2.experiments import EXPERIMENTS
from flattest.studies.question2.limits import MISSED, Limit
from flattest.studies.question2.ways import onwards
from flattest.training.keys import digest
from support.doc_tables import tables
from support.places import ROOT

SOURCE = Path(str(experiments.__file__))
BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
SUMMARIES = read_summaries(SOURCE.with_name(RESULTS))


@pytest.mark.parametrize(
    ("name", "panel"), [("bias", "4b"), ("logistic", "9b"), ("three-layers", "11b")]
)
def test_the_intervention_keeps_the_pattern_and_changes_nothing_else(name, panel):
    (theirs,) = (e for e in PANELS if e.name == f"wen2023/fig{panel}")
    for variant in ("quick", "full"):
        task = BY_NAME[f"question2/kept-{name}"].variant(variant).task
        assert {phase.pattern for phase in task.phases} == {"kept"}
        freed = tuple(msgspec.structs.replace(phase, pattern="free") for phase in task.phases)
        assert msgspec.structs.replace(task, phases=freed) == theirs.variant(variant).task


def own_parity():
    path = ROOT / "examples" / "own_lab.py"
    return runpy.run_path(str(path))["parity"]()


@pytest.mark.parametrize(
    ("name", "example"), [("leaky", lab.setup), ("d50", lab.d50), ("parity", own_parity)]
)
def test_the_judges_examples_are_those_of_the_files_with_nothing_else_changed(name, example):
    as_it_is, kept = (
        BY_NAME[f"question2/judged-{name}-{way}"].full.task for way in ("sam", "sam-kept")
    )
    theirs = example()
    task = theirs.training(theirs.algorithm)
    drawn, asked = (
        np.column_stack(each.distribution.sample(np.random.default_rng(3), 50))
        for each in (as_it_is, task)
    )
    assert (drawn == asked).all()
    assert msgspec.structs.replace(task, distribution=as_it_is.distribution) == as_it_is
    assert {phase.pattern for phase in kept.phases} == {"kept"}
    freed = tuple(msgspec.structs.replace(phase, pattern="free") for phase in kept.phases)
    assert msgspec.structs.replace(kept, phases=freed) == as_it_is


READ = """
import json
from flattest.studies.question2.experiments import EXPERIMENTS
from flattest.training.keys import digest
print(json.dumps({e.name: digest(e.full) for e in EXPERIMENTS}))
"""


@cache
def predicted_at(commit):
    """What was to be run at full scale and what was to come out, hashed, as the commit had it: its
    own tree in a folder of its own, read by a process of its own."""
    packed = subprocess.run(
        ["git", "-C", ROOT, "archive", commit, "src/flattest"], capture_output=True, check=False
    )
    if packed.returncode:
        pytest.skip("the history is not at hand")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tree:
            tree.extractall(folder, filter="data")
        done = subprocess.run(
            [sys.executable, "-c", READ],
            env=os.environ | {"PYTHONPATH": f"{folder}/src"},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("summary", SUMMARIES, ids=lambda summary: summary.experiment)
def test_what_is_expected_was_committed_before_the_runs_were_made(summary):
    assert "+" not in summary.commit, "the runs were made from a tree with changes"
    full = BY_NAME[summary.experiment].full
    assert predicted_at(summary.commit)[summary.experiment] == digest(full)


def test_a_prediction_that_was_changed_afterwards_is_told_apart():
    summary = SUMMARIES[0]
    full = BY_NAME[summary.experiment].full
    bolder = msgspec.structs.replace(full, expectations=full.expectations[:1])
    assert predicted_at(summary.commit)[summary.experiment] != digest(bolder)


def test_what_is_predicted_is_what_is_assessed():
    for summary in SUMMARIES:
        expected = {e.quantity for e in BY_NAME[summary.experiment].full.expectations}
        assert {verdict.statement for verdict in summary.verdicts} <= expected


def test_the_ways_on_from_one_start_take_the_same_time():
    for way, phase in onwards(4.0, 100).items():
        if isinstance(phase, ft.Flow):
            assert phase.time == 4.0
            continue
        per_step = phase.lr * phase.rho**2 / 2 + (phase.lr * phase.label_noise) ** 2 / 2
        steps = phase.length(100) * phase.steps_per_epoch(100)
        assert steps * per_step == pytest.approx(4.0), way
    task = Limit()
    for way, phase in task._phases(0.05).items():
        per_step = phase.lr * phase.rho**2 / 2 + (phase.lr * phase.label_noise) ** 2 / 2
        steps = phase.length(task.n) * phase.steps_per_epoch(task.n)
        assert steps * per_step == pytest.approx(task.time, rel=1e-3), way


def test_the_page_quotes_the_errors_of_1_sam_as_it_is():
    page = (ROOT / "docs" / "question2.md").read_text(encoding="utf-8")
    for summary in read_summaries(papers()["wen2023"].folder / RESULTS):
        if summary.experiment in {f"wen2023/fig{panel}" for panel in ("4b", "9b", "11b")}:
            quoted = f"{summary.column('test_error').median:.3f} in {summary.figure.split()[1]}"
            assert quoted.replace(" in 4b", " in Figure 4b") in page


def test_the_tables_of_the_page_are_those_of_the_committed_results():
    page = tables.page("question2").read_text(encoding="utf-8")
    assert tables.with_tables(page, SUMMARIES) == page
    assert tables.with_tables(page, SUMMARIES[1:]) != page
    shown = [
        name for found in tables.MARK.finditer(page) for name in (found["names"] or "").split()
    ]
    for summary in SUMMARIES:
        panel = summary.experiment.partition("/")[2]
        assert sum(fnmatch(panel, name) for name in shown) == 1, panel


def test_the_page_says_how_often_the_attack_breaks_the_claim():
    page = " ".join(tables.page("question2").read_text(encoding="utf-8").split())
    kinds = ("attack-", "off-kinks-", "out-of-reach-")
    starts = tuple(f"question2/{kind}" for kind in kinds)
    attacks = [s for s in SUMMARIES if s.experiment.startswith(starts)]
    assert len(attacks) == 12
    for summary in attacks:
        values = summary.verdicts[0].values
        missed = sum(value > MISSED for value in values)
        panel = summary.experiment.partition("/")[2]
        assert re.search(rf"\b{missed} of {len(values)} (seeds )?\({panel}\)", page), panel


def test_sentences_of_the_page_have_the_numbers_of_the_results():
    page = " ".join(tables.page("question2").read_text(encoding="utf-8").split())
    found = {summary.experiment.partition("/")[2]: summary for summary in SUMMARIES}

    def error(panel):
        return found[panel].column("test_error").median

    scales = found["scales"]
    small = [
        scales.column(f"η = {rate:g}, scale = {x:g}").high
        for rate in Scales().rates
        for x in (0.1, 0.2, 0.3)
    ]
    assert f"with errors of at most {max(small):.4f}" in page
    assert f"to {scales.column('η = 0.003, scale = 3').median:.3f} at three times the scale" in page
    assert scales.columns["η = 0.01, scale = 3"] is scales.columns["η = 0.03, scale = 3"] is None
    for panel in ("decides-from-flow", "decides-from-flow-kept"):
        end = found[panel].column("test error")
        assert f"{end.median:.3f} [{end.low:.3f}, {end.high:.3f}]" in page
    assert f"m-SAM is slowest: error {error('same-start-no-bias-m-sam'):.3f}" in page
    flows = [error(f"same-start-sim-bn-flow-{kinks}") for kinks in ("unseen", "seen")]
    assert "with {:.3f} unseen and {:.3f} seen (2 seeds)".format(*flows) in page
    bn = found["same-start-sim-bn-sam"]
    over = bn.column("sharpness").median / bn.column("bound").median
    assert f"the trace is {over:.1f} times the least" in page
    assert f"the error {error('same-start-sim-bn-sam'):.3f}, where" in page
    others = [error(f"same-start-sim-bn-{way}") for way in ("label-noise", "m-sam", "sam-kept")]
    said = "label noise has {:.3f}, m-SAM {:.3f}: all missed. With the pattern kept it is {:.3f}"
    assert said.format(*others) in page
    walls = [found[f"same-start-bias-{way}"] for way in ("flow-walls", "sam")]
    errors = [each.column("test_error").median for each in walls]
    said = "as 1-SAM does: test errors of {:.3f} and {:.3f}, at nearly the same"
    assert said.format(*errors) in page
    ends = [each.column("sharpness").median for each in walls]
    assert abs(ends[0] / ends[1] - 1) < 0.03
    assert {each.seeds for each in walls} == {5}
    flows = [error(f"same-start-three-layers-flow-{kinks}") for kinks in ("unseen", "seen")]
    said = "the flow that sees no kinks ({:.3f}); the one that sees them has {:.3f}"
    assert said.format(*flows) in page
    longer = [
        error(f"longer-sim-ln-{way}") for way in ("sam", "sam-kept", "label-noise", "flow-unseen")
    ]
    said = "1-SAM has {:.3f}, with its pattern kept {:.3f}, label noise {:.3f} and the flow"
    assert f"{said} that sees no kinks {{:.3f}}".format(*longer) in page
    three = [error(panel) for panel in ("same-start-three-layers-sam-kept", "kept-three-layers")]
    assert "kept it has {:.3f} after this time, and {:.3f} after".format(*three) in page
    assert error("same-start-three-layers-sam") > 0.3
    ways = ("bias", "logistic", "three-layers")
    kept = [found[f"kept-{way}"].column("test_error") for way in ways]
    medians, largest = [f"{k.median:.3f}" for k in kept], [f"{k.high:.3f}" for k in kept]
    assert "{} in the setting of Figure 4b, {} in 9b's and {} in 11b's".format(*medians) in page
    assert "the largest of five are {}, {} and {}.".format(*largest) in page
    names = {
        "bias": "bias",
        "50 dimensions": "d50",
        "leaky ReLU": "leaky",
        "no bias": "no-bias",
        "Sim-BN": "sim-bn",
        "Sim-LN": "sim-ln",
        "three-parity": "parity",
    }
    for title, name in names.items():
        both = [error(f"judged-{name}-{way}") for way in ("sam", "sam-kept")]
        assert "{} {:.3f} and {:.3f}".format(title, *both) in page
    judge = " ".join(tables.page("judge").read_text(encoding="utf-8").split())
    both = [
        error(f"judged-{name}-{way}")
        for name in ("bias", "d50", "leaky")
        for way in ("sam-kept", "sam")
    ]
    said = "test error of {:.3f} where 1-SAM has {:.3f} (bias), {:.3f} where it has {:.3f} (50"
    assert f"{said} dimensions), {{:.3f}} where it has {{:.3f}} (leaky ReLU)".format(*both) in judge


def test_the_page_says_where_the_ways_end_after_ten_times_the_time():
    page = " ".join(tables.page("question2").read_text(encoding="utf-8").split())
    found = {summary.experiment.partition("/")[2]: summary for summary in SUMMARIES}
    order = ("sam", "m-sam", "flow-seen", "flow-unseen", "sam-kept", "label-noise")
    longer = [found[f"longer-bias-{way}"] for way in order]
    errors = [each.column("test_error").median for each in longer]
    said = "test errors of {:.3f} for 1-SAM, {:.3f} for m-SAM without noise and {:.3f} for the flow"
    assert said.format(*errors) in page
    said = "that sees kinks; {:.3f} for the flow that sees none, {:.3f} for 1-SAM with its pattern"
    assert f"{said} kept and {{:.3f}} for label noise".format(*errors[3:]) in page
    over = [each.column("sharpness").median / each.column("bound").median for each in longer]
    assert max(abs(share - 1) for share in over) < 0.02
    assert {each.seeds for each in longer} == {5}
    assert all(verdict.holds for each in longer for verdict in each.verdicts)
    early = [found[f"same-start-bias-{way}"] for way in ("flow-unseen", "flow-seen", "m-sam")]
    errors = [each.column("test_error").median for each in early]
    said = "no kinks has {:.3f}, the one that sees them {:.3f}, and m-SAM {:.3f}, at"
    assert said.format(*errors) in page
    ln = [found[f"longest-sim-ln-{way}"] for way in ("sam", "sam-kept", "flow-unseen")]
    errors = [each.column("test_error").median for each in ln]
    said = "Sim-LN has {:.3f} as it is, {:.3f} with the pattern kept and {:.3f} by the flow"
    assert said.format(*errors) in page
    bn = [found[f"longer-sim-bn-{way}"].column("test_error").median for way in ("sam", "sam-kept")]
    assert "after 40 Sim-BN has {:.3f} and, kept, {:.3f}".format(*bn) in page
    cell = [
        found[f"diagram-bias-{way}"].column("d = 22, n = 72").median
        for way in ("sam", "flow-seen", "sam-kept", "flow-unseen")
    ]
    said = "it has {:.3f} and the flow that sees kinks {:.3f}, with the pattern kept {:.3f} and the"
    assert f"{said} flow that sees none {{:.3f}}".format(*cell) in page


def test_new_rows_take_the_place_of_old_ones_with_no_more_seeds():
    old = [{"experiment": "b", "seeds": 2}, {"experiment": "a", "seeds": 1}]
    new = [{"experiment": "b", "seeds": 3}]
    assert tables.renewed(old, new, ["a", "b", "c"]) == [old[1], new[0]]
    with pytest.raises(SystemExit, match="b: 3 seeds are committed"):
        tables.renewed(new, old, ["a", "b"])
