from flattest.ledger.claim import ledger


def test_every_numbered_statement_has_an_entry():
    ids = {entry.id.split("/")[1] for entry in ledger("vardhan2026/*", "fast")}
    expected = {f"lemma-{k}" for k in range(1, 18)} | {f"theorem-{k}" for k in range(1, 6)}
    expected |= {f"proposition-{k}" for k in range(1, 5)}
    assert expected | {"definition-2", "example-1", "appendix-b.1", "appendix-d.6"} <= ids
