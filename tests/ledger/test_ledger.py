"""The ledger of all papers: every status as expected, every constant pinned down."""

import re

import pytest

from flattest.ledger.adversary import Attacked
from flattest.ledger.claim import ledger
from flattest.ledger.page import lines
from flattest.ledger.verify import check
from support.places import ROOT

PAGE = lines((ROOT / "docs" / "claims.md").read_text(encoding="utf-8"))
FAST = ledger("*", "fast")
# Slow, and run by `make test-more`: what takes over a second.
SLOW = [
    "mulayoff2021/S32",
    "vardhan2026/lemma-2",
    "vardhan2026/lemma-8",
    "vardhan2026/theorem-2",
    "vardhan2026/theorem-3",
    "wen2023/definition-4.1",
    "wen2023/equation-1",
    "wen2023/equation-19/as-printed",
    "wen2023/lemma-a.1",
    "wen2023/lemma-a.12",
    "wen2023/lemma-a.13/corrected",
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
    "wen2023/theorem-3.2/infimum",
    "wen2023/theorem-4.1",
    "wen2023/theorem-5.1",
]
# Statements about all instances that no optimizer attacks yet: to shrink to nothing.
UNATTACKED = {
    "wen2023/lemma-3.1",
    "wen2023/lemma-a.1",
    "wen2023/lemma-a.2",
    "wen2023/lemma-a.3/corrected",
    "wen2023/lemma-a.4",
    "wen2023/lemma-a.5",
    "wen2023/lemma-a.6",
    "wen2023/lemma-a.7",
    "wen2023/lemma-a.8",
    "wen2023/lemma-a.9",
    "wen2023/lemma-a.10",
    "wen2023/lemma-a.11",
    "wen2023/lemma-a.12",
    "wen2023/lemma-a.14",
    "wen2023/lemma-a.16",
    "wen2023/lemma-a.17",
    "wen2023/lemma-a.18",
    "wen2023/lemma-a.19",
    "wen2023/lemma-a.19/norm-moment-corrected",
    "wen2023/lemma-a.24",
    "wen2023/lemma-a.25",
    "wen2023/lemma-a.25/jensen-corrected",
    "wen2023/lemma-a.26",
    "wen2023/theorem-3.2",
    "wen2023/theorem-3.2/all-neurons-corrected",
    "wen2023/theorem-4.1/lower-bound",
    "mulayoff2021/S79",
    "mulayoff2021/lemma-2-stable",
    "mulayoff2021/lemma-2-strongly-stable",
    "mulayoff2021/lemma-3",
    "mulayoff2021/lemma-4",
    "mulayoff2021/lemma-5",
    "mulayoff2021/theorem-1",
    "mulayoff2021/theorem-2",
    "mulayoff2021/theorem-2-variation",
    "vardhan2026/appendix-b.1",
    "vardhan2026/appendix-b.2/corrected",
    "vardhan2026/lemma-1",
    "vardhan2026/lemma-4",
    "vardhan2026/lemma-5",
    "vardhan2026/lemma-6",
    "vardhan2026/lemma-7",
    "vardhan2026/lemma-7-slepian",
    "vardhan2026/lemma-9",
    "vardhan2026/lemma-11",
    "vardhan2026/lemma-12",
    "vardhan2026/lemma-16",
    "vardhan2026/proposition-2/corrected",
    "vardhan2026/proposition-4",
    "vardhan2026/section-1.2-extreme-points/corrected",
    "vardhan2026/theorem-1",
    "vardhan2026/theorem-5",
}
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
    unattacked = {e.id for e in ledger() if e.is_universal and not isinstance(e.check, Attacked)}
    assert unattacked <= UNATTACKED
    assert all(e.refuted_by for e in ledger() if isinstance(e.check, Attacked))


def test_the_page_says_how_each_of_them_was_attacked():
    for entry in ledger():
        attacked = isinstance(entry.check, Attacked)
        assert ("attacked by" in PAGE[entry.id]) == attacked, entry.id
