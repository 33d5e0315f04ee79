"""The ledger of all papers: every status as expected, every constant pinned down."""

import pytest

from flattest.ledger import claim as claims

FAST = claims.ledger("*", "fast")
CONSTANTS = [(entry, name) for entry in FAST for name in entry.constants]


@pytest.mark.parametrize("entry", FAST, ids=lambda entry: entry.id)
def test_the_ledger_finds_the_expected_status(entry):
    outcome = claims.run(entry)
    assert outcome.as_expected, (outcome.status, outcome.measured, outcome.note)


@pytest.mark.parametrize("factor", [0.99, 1.01])
@pytest.mark.parametrize(
    ("entry", "name"), CONSTANTS, ids=[f"{entry.id}:{name}" for entry, name in CONSTANTS]
)
def test_one_per_cent_off_a_constant_makes_its_entry_fail(entry, name, factor):
    outcome = claims.run(entry, **{name: entry.constants[name] * factor})
    assert outcome.status.startswith("fails"), (outcome.status, outcome.measured)


def test_every_misprint_has_both_readings():
    every = claims.ledger()
    printed = {e.id.removesuffix("as-printed") for e in every if e.reading == "as printed"}
    corrected = {e.id.removesuffix("corrected") for e in every if e.reading == "as corrected"}
    assert printed == corrected
    assert printed
