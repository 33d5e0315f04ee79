import pytest

from flattest.ledger import claim as claims
from support.places import ROOT

PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
ROWS = {
    (paper, row.split(" | ")[0].strip("| `")): row
    for section in PAGE.split("\n## ")[1:]
    for paper, *lines in [section.splitlines()]
    for row in lines
    if row.startswith("| `")
}


@pytest.mark.parametrize("entry", claims.ledger(), ids=lambda entry: entry.id)
def test_the_page_has_every_claim_with_its_expected_status(entry):
    row = ROWS[tuple(entry.id.split("/", 1))]
    for text in (entry.statement, entry.source, entry.evidence):
        assert text.replace("|", "\\|") in row
    assert f"| {entry.expected}" in row


def test_the_page_has_no_other_rows():
    assert len(ROWS) == len(claims.ledger())
