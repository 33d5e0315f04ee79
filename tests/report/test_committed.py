"""The page of what is committed: every summary, every row of the ledger's document."""

import runpy

import pytest

from flattest.errors import FlattestError
from flattest.experiments.registry import papers
from flattest.lab.summary import read_summaries
from flattest.ledger.claim import ledger
from flattest.ledger.figures import RESULTS
from flattest.ledger.kept import written
from flattest.ledger.page import lines
from support.pages import unpacked
from support.places import ROOT

PROVEN = "| holds · ✓ proven (certificate) |"
CLAIMS = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page():
    atlas = runpy.run_path(str(ROOT / "docs" / "site" / "atlas.py"))
    return unpacked(atlas["doorway_and_page"]()[1])


def test_every_committed_summary_has_its_card_with_its_own_numbers(page):
    cards = [panel for panel in page["outline"]["panels"] if panel["kept"]]
    paths = (paper.folder / RESULTS for paper in papers().values())
    summaries = [s for path in paths if path.exists() for s in read_summaries(path)]
    assert len(summaries) > 100
    for card, summary in zip(cards, summaries, strict=True):
        assert (card["name"], card["variant"]) == (summary.experiment, summary.variant)
        assert [v["met"] for v in card["verdicts"]] == [v.holds for v in summary.verdicts]
        shown = {name: c and c["median"] for name, c in card["kept"]["columns"].items()}
        assert shown == {name: c and c.median for name, c in summary.columns.items()}


def test_the_runs_of_table_1_come_with_their_curves(page):
    (front,) = page["outline"]["fronts"]
    panels = {panel["name"]: panel["runs"] for panel in page["outline"]["panels"]}
    for row in front["scenarios"]:
        runs = [page["runs"][key] for key in panels[row["panels"]["algorithm"]]]
        assert all(len(run["series"]["sharpness"]) > 20 for run in runs)
        assert runs


def test_the_ledger_s_document_is_read_back_as_it_was_written(page):
    found = written(CLAIMS)
    assert found.keys() == {claim.id for claim in ledger()}
    for claim in page["claims"]:
        kept = found[claim["id"]]
        assert claim["checked"]["grade"] == kept.grade in ("proven", "refuted", "supported", "open")
        assert f"| {kept.value} | {kept.bound} | {kept.tolerance} |" in lines(CLAIMS)[kept.id]
    assert all(kept.as_expected for kept in found.values())


def test_a_row_that_is_not_as_expected_is_read_as_such_and_nonsense_is_refused():
    id, line = next((id, line) for id, line in lines(CLAIMS).items() if PROVEN in line)
    wrong = line.replace(PROVEN, "| **fails · ✗ refuted (certificate)** |")
    kept = written(f"\n## wen2023\n\n{wrong}\n")[id]
    assert (kept.status, kept.grade, kept.as_expected) == ("fails", "refuted", False)
    with pytest.raises(FlattestError, match="no status and grade"):
        written(f"\n## wen2023\n\n{line.replace(PROVEN, '| who knows |')}\n")
