"""The ledger of all papers: every status as expected, every constant pinned down."""

import dataclasses
import re
from collections import defaultdict

import pytest

from flattest.experiments.registry import experiment
from flattest.ledger.adversary import Attacked
from flattest.ledger.claim import get, ledger
from flattest.ledger.figures import basis
from flattest.ledger.page import lines
from flattest.ledger.verify import check
from support.places import ROOT

PAGE = lines((ROOT / "docs" / "claims.md").read_text(encoding="utf-8"))
FAST = ledger("*", "fast")
# Slow, and run by `make test-more`: what takes over a second.
SLOW = [
    "mulayoff2021/S32",
    "vardhan2026/appendix-b.1",
    "vardhan2026/lemma-2",
    "vardhan2026/lemma-8",
    "vardhan2026/proposition-4",
    "vardhan2026/theorem-2/drawn",
    "vardhan2026/theorem-3/drawn",
    "wen2023/all-widths/theorem-3.1-threshold",
    "wen2023/appendix-a.5/same-flattest",
    "wen2023/definition-4.1",
    "wen2023/equation-1",
    "wen2023/equation-19/as-printed",
    "wen2023/lemma-3.1/rademacher",
    "wen2023/lemma-a.1",
    "wen2023/lemma-a.13/corrected",
    "wen2023/lemma-a.14",
    "wen2023/lemma-a.16",
    "wen2023/lemma-a.17",
    "wen2023/lemma-a.19/constant-as-printed",
    "wen2023/lemma-a.19/constant-corrected",
    "wen2023/lemma-a.19/norm-moment-corrected",
    "wen2023/lemma-a.2/as-printed",
    "wen2023/lemma-a.2/corrected",
    "wen2023/lemma-a.3/as-printed",
    "wen2023/lemma-a.3/corrected",
    "wen2023/proposition-4.1",
    "wen2023/proposition-4.2",
    "wen2023/proposition-4.2/width-as-printed",
    "wen2023/proposition-4.2/width-corrected",
    "wen2023/proposition-5.1",
    "wen2023/proposition-5.2",
    "wen2023/proposition-a.2/width-n-as-printed",
    "wen2023/proposition-a.2/width-n-corrected",
    "wen2023/proposition-a.2/width-n-even",
    "wen2023/section-2/gaussian",
    "wen2023/section-3.1/kernel",
    "wen2023/section-6/deep-without-bias",
    "wen2023/theorem-3.2/all-neurons-corrected",
    "wen2023/theorem-3.2/as-printed",
    "wen2023/theorem-3.2/corrected",
    "wen2023/theorem-3.2/d-30",
    "wen2023/theorem-3.2/infimum",
    "wen2023/theorem-3.2/width-5",
    "wen2023/theorem-4.1",
    "wen2023/theorem-5.1",
]
STATUSES = [
    pytest.param(entry, marks=[pytest.mark.slow] if entry.id in SLOW else [], id=entry.id)
    for entry in FAST
]
CONSTANTS = [(entry, name) for entry in FAST for name in entry.constants]


@pytest.mark.parametrize("entry", STATUSES)
def test_the_ledger_finds_the_expected_status(entry):
    row = check(entry)
    assert row.as_expected, (row.status, row.verdict, row.note)


@pytest.mark.parametrize("factor", [0.99, 1.01])
@pytest.mark.parametrize(
    ("entry", "name"), CONSTANTS, ids=[f"{entry.id}:{name}" for entry, name in CONSTANTS]
)
def test_one_per_cent_off_a_constant_makes_its_entry_fail(entry, name, factor):
    row = check(entry, **{name: entry.constants[name] * factor})
    assert row.status.startswith("fails"), (row.status, row.verdict)


def test_every_misprint_has_both_readings():
    every = ledger()
    printed = {e.id.removesuffix("as-printed") for e in every if e.reading == "as printed"}
    corrected = {e.id.removesuffix("corrected") for e in every if e.reading == "as corrected"}
    assert printed == corrected
    assert printed


def test_ids_are_in_their_natural_order():
    ids = [entry.id for entry in ledger("wen2023/lemma-a.*")]
    assert ids.index("wen2023/lemma-a.9") < ids.index("wen2023/lemma-a.10")
    assert ids == sorted(ids, key=lambda id: int(re.findall(r"\d+", id)[1]))


@pytest.mark.parametrize("entry", ledger(), ids=lambda entry: entry.id)
def test_the_page_has_every_claim_with_its_expected_status(entry):
    line = PAGE[entry.id]
    for text in (entry.statement, entry.source, entry.evidence):
        assert text.replace("|", "\\|") in line
    assert f"| {entry.expected} · " in line


def test_the_page_has_the_claims_of_the_ledger_in_its_order():
    assert list(PAGE) == [entry.id for entry in ledger()]


def test_every_statement_about_all_instances_says_what_would_refute_it_and_is_attacked():
    assert [e.id for e in ledger() if e.is_universal and not isinstance(e.check, Attacked)] == []
    assert all(e.refuted_by for e in ledger() if isinstance(e.check, Attacked))
    assert [e.id for e in ledger() if e.evidence == "proof" and not e.refuted_by] == []


def test_what_is_proven_of_all_instances_has_a_proof():
    """An attack that fails is not a certificate: the grade is that of the docstring's proof."""
    kinds = {entry.evidence for entry in ledger() if isinstance(entry.check, Attacked)}
    assert kinds <= {"proof", "inequality", "sample"}
    proven = [entry for entry in ledger() if entry.evidence == "proof"]
    assert [e.id for e in proven if "proof" not in (e.check.__doc__ or "").lower()] == []


def test_the_page_says_how_each_of_them_was_attacked():
    for entry in ledger():
        attacked = isinstance(entry.check, Attacked)
        assert ("attacked by" in PAGE[entry.id]) == attacked, entry.id


def evidence_of(entry):
    """What a row rests on: for a figure the runs, by what was trained whatever it is called, and
    the number taken of them, else the function that computes it."""
    if entry.experiments:
        trained = (basis(name).summary for name in entry.experiments)
        tasks = (experiment(s.experiment).variant(s.variant).task for s in trained)
        return tuple(map(repr, tasks)), check(entry).verdict.value
    return entry.check.__module__, entry.check.__qualname__


def test_no_measurement_counts_twice():
    """Two readings of one misprint are one measurement."""
    rows = defaultdict(set)
    for entry in ledger():
        if entry.evidence != "citation":
            statement = re.sub("(as-printed|corrected)$", "", entry.id)
            rows[evidence_of(entry)].add(statement)
    assert {key: ids for key, ids in rows.items() if len(ids) > 1} == {}


def test_one_run_under_two_names_is_one_measurement():
    """Figure 4b is what Table 1's second row trains."""
    section_4 = get("wen2023/section-4/heading-corrected")
    renamed = dataclasses.replace(section_4, experiments=("wen2023/fig4b",))
    assert section_4.experiments != renamed.experiments
    assert evidence_of(section_4) == evidence_of(renamed)
