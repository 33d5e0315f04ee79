"""Table 1's third column: what is committed of the flow, and nothing else."""

import msgspec
import pytest

from flattest.experiments.registry import experiments, papers
from flattest.lab.summary import read_summaries
from flattest.ledger.figures import RESULTS
from flattest.studies.table1 import flow
from flattest.studies.table1.experiments import ARCHITECTURES

COMMITTED = {s.experiment: s for s in read_summaries(papers()["question2"].folder / RESULTS)}


def test_every_row_names_an_experiment_that_expects_its_quantity():
    assert set(flow.FLOWS) == set(ARCHITECTURES)
    for asked in flow.FLOWS.values():
        found = experiments()[f"question2/{asked.experiment}"].full
        assert asked.quantity in {each.quantity for each in found.expectations}


@pytest.mark.parametrize("row", ARCHITECTURES)
def test_a_cell_is_that_of_the_committed_seeds(row):
    name, found = f"question2/{flow.FLOWS[row].experiment}", flow.flow_generalizes(row, 0.1)
    if name not in COMMITTED:
        assert found.grade == "open"
        assert f"flattest run {name} --full" in found.sentence
        return
    assert len(found.verdict.values) == COMMITTED[name].seeds
    assert name in found.sentence


def test_the_grade_follows_the_interval():
    summary = COMMITTED["question2/longer-bias-flow-unseen"]
    asked = flow.FLOWS["bias"]

    def graded(*errors):
        verdicts = tuple(
            msgspec.structs.replace(v, values=errors) if v.statement == asked.quantity else v
            for v in summary.verdicts
        )
        changed = msgspec.structs.replace(summary, verdicts=verdicts, seeds=len(errors))
        return flow._finding(changed, asked, 0.1).grade

    assert graded(0.01, 0.02, 0.015) == "supported"
    assert graded(0.31, 0.32, 0.315) == "refuted"
    assert graded(0.01, 0.3) == "open"
    assert graded(0.01) == "open"
