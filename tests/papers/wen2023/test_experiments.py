"""What docs/wen2023.md says of the experiments."""

from flattest.papers.wen2023.experiments import EXPERIMENTS
from support.places import ROOT


def expectations():
    """What is expected of the panels at full scale, with its threshold, as a table."""
    asked: dict[str, list[str]] = {}
    for e in EXPERIMENTS:
        for expected in e.full.expectations:
            words = f"{expected.quantity} {expected.side} {expected.threshold:.6g}"
            asked.setdefault(words.replace("|", "\\|"), []).append(e.panel)
    rows = [f"| {words} | {', '.join(panels)} |" for words, panels in sorted(asked.items())]
    return "\n".join(["| what is expected | of the panels |", "| --- | --- |", *rows])


def test_the_document_has_the_thresholds_of_the_expectations():
    table = expectations()
    assert table in (ROOT / "docs" / "wen2023.md").read_text(), table
