"""The claims ledger: each numbered statement of the papers as a check that can fail."""
