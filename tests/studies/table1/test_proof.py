"""Table 1's first cell is proven exactly where a committed draw is."""

import msgspec

from flattest.evidence import Verdict
from flattest.experiments.registry import experiments
from flattest.lab.scenario import Finding, mean_error
from flattest.lab.summary import Spread, Summary
from flattest.studies.table1 import proof

SEARCHED = Finding("supported", mean_error([0.0, 0.0], 0.1), "The searches.")


def summary(proven, refuted):
    verdicts = (Verdict(proof.PROVEN, 0.0, 0.0, "≥", values=proven),)
    empty = {"figure": "", "statement": "", "notes": "", "machine": "", "commit": ""}
    return Summary(
        experiment="question1/d30-n100",
        variant="full",
        seeds=len(proven),
        statuses={},
        seconds=1.0,
        engine=3,
        columns={"test_error": Spread(0.5, 0.5, 0.5) if any(refuted) else None},
        verdicts=verdicts,
        **empty,
    )


def test_the_experiment_expects_the_quantity():
    full = experiments()[proof.PROOFS["no-bias"]].full
    said = {each.quantity for each in full.expectations}
    assert proof.PROVEN in said
    assert (full.task.d, full.task.n) == (30, 100)


def test_the_committed_results_prove_the_cell():
    found = proof.with_proof("no-bias", SEARCHED)
    assert found.grade == "proven"
    assert "d = 30, n = 100" in found.sentence


def test_a_proven_draw_is_named_and_the_others_are_counted():
    found = proof.proven(summary((0.0, 1.0, 1.0), (1.0, 0.0, 0.0)), SEARCHED)
    assert found.grade == "proven"
    assert "seed 1," in found.sentence
    assert "2 of 3 draws agree, some of the others are refuted" in found.sentence
    found = proof.proven(summary((0.0, 1.0, 1.0), (0.0, 0.0, 0.0)), SEARCHED)
    assert "none of the others is refuted" in found.sentence
    assert found.sentence.endswith(SEARCHED.sentence)


def test_without_a_proven_draw_the_searches_stand():
    assert proof.proven(summary((0.0, 0.0), (0.0, 0.0)), SEARCHED) == SEARCHED
    assert proof.with_proof("bias", SEARCHED) == SEARCHED


def test_what_a_network_refutes_is_not_called_proven():
    refuted = msgspec.structs.replace(SEARCHED, grade="refuted")
    assert proof.with_proof("no-bias", refuted) == refuted
