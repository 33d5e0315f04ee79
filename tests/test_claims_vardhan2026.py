import pytest

from flattest import claims

FAST = claims.ledger("vardhan2026/*", "fast")
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


def test_every_numbered_statement_has_an_entry():
    ids = {entry.id.removeprefix("vardhan2026/").split("/")[0] for entry in FAST}
    expected = {f"lemma-{k}" for k in range(1, 18)} | {f"theorem-{k}" for k in range(1, 6)}
    expected |= {f"proposition-{k}" for k in range(1, 5)}
    assert expected | {"definition-2", "example-1", "appendix-b.1", "appendix-d.6"} <= ids


def test_every_statement_that_fails_as_printed_has_a_correction():
    printed = {e.id.removesuffix("/as-printed") for e in FAST if e.reading == "as printed"}
    corrected = {e.id.removesuffix("/corrected") for e in FAST if e.reading == "as corrected"}
    assert printed == corrected
