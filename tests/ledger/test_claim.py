import json
import math
from typing import get_args

import pytest

from flattest.cli._dispatch import main
from flattest.errors import FlattestError
from flattest.evidence import GLYPHS, MEANINGS, Grade, Verdict, at_least, at_most, equal
from flattest.ledger import claim as claims
from flattest.ledger.claim import GRADE_WHEN_MET, assuming, cite, claim, every, provided, worst
from flattest.ledger.page import cells, line, page
from flattest.ledger.verify import check


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(claims, "_REGISTRY", {})
    monkeypatch.setattr(claims, "_load", lambda: None)


def register(name, checked, evidence="identity", **extra):
    claim(f"wen2023/{name}", "A statement.", source="Here", evidence=evidence, **extra)(checked)
    return claims.get(f"wen2023/{name}")


@pytest.mark.parametrize(
    ("evidence", "reading", "met", "finding"),
    [
        ("identity", None, True, "holds · ✓ proven (identity, 7 seeds)"),
        ("certificate", None, True, "holds · ✓ proven (certificate, 7 seeds)"),
        ("enumeration", None, True, "holds · ✓ proven (enumeration, 7 seeds)"),
        ("inequality", None, True, "holds · (✓) supported (inequality, 7 seeds)"),
        ("scaling law", None, True, "holds · (✓) supported (scaling law, 7 seeds)"),
        ("figure", None, True, "holds · (✓) supported (figure, 7 seeds)"),
        ("inequality", None, False, "fails · ✗ refuted (inequality, 7 seeds)"),
        ("identity", "as printed", False, "fails as printed · ✗ refuted (identity, 7 seeds)"),
        ("identity", "as printed", True, "holds as printed · ✓ proven (identity, 7 seeds)"),
        ("sample", "as corrected", True, "holds as corrected · (✓) supported (sample, 7 seeds)"),
        ("identity", "as corrected", False, "fails as corrected · ✗ refuted (identity, 7 seeds)"),
    ],
)
def test_status_and_grade_follow_from_the_numbers(evidence, reading, met, finding):
    entry = register(
        "a", lambda: equal(1.0 if met else 1.02, 1.0, 1e-2, seeds=7), evidence, reading=reading
    )
    row = check(entry)
    assert row.finding == finding
    assert row.as_expected == (met != (reading == "as printed"))


def test_what_rests_on_lost_settings_is_not_refuted_but_not_reproduced():
    entry = register("a", lambda: equal(2.0, 1.0, 0.0), "figure", lost="the noise")
    row = check(entry)
    assert row.as_expected
    assert row.finding == "not reproduced · ? open (settings lost: the noise)"
    entry = register("b", lambda: equal(1.0, 1.0, 0.0), "figure", lost="the noise")
    assert check(entry).finding == "holds · (✓) supported (figure)"


def test_the_scale_has_a_glyph_and_a_meaning_for_each_grade():
    assert list(GLYPHS) == list(MEANINGS) == list(get_args(Grade))
    assert len(set(GLYPHS.values())) == len(GLYPHS)
    assert set(GRADE_WHEN_MET) == set(get_args(claims.Evidence))


def test_a_tolerance_is_relative_except_at_zero():
    assert equal(1010.0, 1000.0, 0.011).holds
    assert not equal(1012.0, 1000.0, 0.011).holds
    assert equal(0.01, 0.0, 0.011).holds
    assert not equal(0.012, 0.0, 0.011).holds
    assert at_most(-5.0, -5.0).holds
    assert not at_most(-4.99, -5.0).holds
    assert at_least(3.0, 2.0).holds
    assert not at_least(1.999, 2.0, 1e-4).holds


def test_nan_meets_nothing():
    assert not any(make(math.nan, 1.0, 1.0).holds for make in (equal, at_most, at_least))


def test_the_worst_part_is_the_one_that_fails():
    good, close, bad = at_most(1, 2), at_most(1.9, 2), at_most(3, 2)
    assert worst([good, close]) is close
    assert worst([good, bad, close]) is bad
    assert not worst([good, at_most(math.nan, 2)]).holds
    with pytest.raises(FlattestError, match="at least one"):
        worst([])
    with pytest.raises(FlattestError, match="at least one"):
        every([])


def test_a_conjunction_shows_its_headline_or_what_failed_first():
    good, close, bad = at_most(1, 2), at_most(1.9, 2), at_most(3, 2)
    assert provided(good, close) is good
    assert provided(good, bad, close) is bad
    untouched = iter([good, bad, close])
    assert every(untouched) is bad
    assert next(untouched) is close


def test_an_instance_outside_the_hypotheses_counts_for_nothing():
    entry = register(
        "misprint", lambda: assuming(at_most(2, 1), at_most(2, 1)), reading="as printed"
    )
    row = check(entry)
    assert (row.status, row.as_expected) == ("error", False)
    assert "hypothesis" in row.note


def test_a_check_that_raises_is_an_error_row_not_a_crash():
    def broken():
        raise FlattestError("No such network.")

    row = check(register("broken", broken))
    assert (row.status, row.as_expected) == ("error", False)
    assert "No such network" in row.note


def test_a_plain_statement_may_be_expected_to_fail():
    entry = register("overstated", lambda: at_most(2, 1), expected="fails")
    assert check(entry).as_expected


def test_constants_can_be_changed():
    entry = register("constant", lambda factor=2.0: equal(2.0, factor, 1e-9))
    assert entry.constants == {"factor": 2.0}
    assert check(entry).as_expected
    assert not check(entry, factor=2.02).as_expected


def test_patterns_select_and_costs_leave_out():
    register("lemma-1", lambda: equal(1, 1, 0))
    register("lemma-2", lambda: equal(1, 1, 0), cost="full")
    register("theorem-1", lambda: equal(1, 1, 0))
    names = lambda *query: [c.id for c in claims.ledger(*query)]  # noqa: E731
    assert names("lemma") == ["wen2023/lemma-1", "wen2023/lemma-2"]
    assert names("*-1") == ["wen2023/lemma-1", "wen2023/theorem-1"]
    assert names("*", "fast") == ["wen2023/lemma-1", "wen2023/theorem-1"]
    with pytest.raises(FlattestError, match="No claim matches 'corollary'"):
        claims.ledger("corollary")
    with pytest.raises(FlattestError, match="valid are: wen2023/lemma-1"):
        claims.get("wen2023/lemma-9")


@pytest.mark.parametrize(
    ("id", "extra", "message"),
    [
        ("nobody/lemma", {}, "paper"),
        ("wen2023", {}, "paper"),
        ("wen2023/x", {"evidence": "hope"}, "kind of evidence 'hope'"),
        ("wen2023/x", {"reading": "as wished"}, "reading 'as wished'"),
        ("wen2023/x", {"cost": "free"}, "cost 'free'"),
    ],
)
def test_bad_metadata_is_refused(id, extra, message):
    with pytest.raises(FlattestError, match=message):
        claim(id, "S.", **{"source": "Here", "evidence": "identity", **extra})


def test_an_id_is_registered_once():
    register("twice", lambda: equal(1, 1, 0))
    with pytest.raises(FlattestError, match="registered twice"):
        register("twice", lambda: equal(1, 1, 0))


def test_the_page_is_a_table_and_marks_what_was_not_expected():
    register("good", lambda: equal(22.271057451320086, 22.27105745132, 1e-9, statement="a|b"))
    register("bad", lambda: at_most(2, 1))
    cite("wen2023/cited", "Known.", source="Lemma A.20")
    rows = [check(c) for c in claims.ledger()]
    text = page(rows)
    assert text == page(rows)
    assert (
        "| `good` | A statement. | Here | identity | 22.271 | = 22.271 | 1e-09 "
        "| holds · ✓ proven (identity) | a\\|b |" in text
    )
    bad, cited, _ = map(line, rows)
    assert "| **fails · ✗ refuted (identity)** |" in bad
    assert cited.count("|") == bad.count("|")


def test_rounding_errors_are_not_printed():
    assert cells(equal(3e-16, 0.0, 1e-12)) == ("< 1e-12", "= 0", "1e-12")
    assert cells(equal(0.0, 0.0, 0.0)) == ("0", "= 0", "0")
    interval = Verdict("", 1.0, 1.0, "≥", 0.0, interval=(0.5, 1.5))
    assert cells(interval) == ("1 [0.5, 1.5]", "≥ 1", "0")


def verified(*arguments):
    return main(["verify", *arguments, "--workers", "1"])


def test_verify_exits_0_only_when_every_status_is_the_expected_one(capsys):
    register("good", lambda: equal(1, 1, 0))
    register("misprint", lambda: equal(2, 1, 0), reading="as printed")
    assert verified() == 0
    assert "fails as printed" in capsys.readouterr().out
    register("bad", lambda: at_most(2, 1, statement="because"))
    assert verified() == 1
    shown = capsys.readouterr().out
    assert "because" in shown
    assert "3 claims, 1 not as expected" in shown
    assert verified("good") == 0


def test_a_misprint_that_does_not_fail_fails_the_command():
    register("misprint", lambda: equal(1, 1, 0), reading="as printed")
    assert verified() == 1


def test_verify_prints_json_with_the_numbers(capsys):
    register("good", lambda: equal(1.5, 1.5, 0, statement="n"))
    assert verified("--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["status"], row["verdict"]["value"], row["note"]) == ("holds", 1.5, "n")


def test_verify_lists_without_checking(capsys):
    register("broken", lambda: 1 / 0)
    assert verified("--list") == 0
    assert "wen2023/broken" in capsys.readouterr().out
    assert verified("--list", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["expected"] == "holds"


def test_verify_fast_leaves_out_the_long_ones(capsys):
    register("short", lambda: equal(1, 1, 0))
    register("long", lambda: 1 / 0, cost="full")
    assert verified("--fast") == 0
    assert "long" not in capsys.readouterr().out


def test_verify_writes_the_page_and_renews_its_rows(tmp_path, capsys):
    checked = []
    register("a-good", lambda: checked.append("good") or equal(1, 1, 0, statement="a|b `c`"))
    register("changing", lambda: checked.append("changing") or equal(len(checked), 1, 9))
    file = tmp_path / "claims.md"
    assert verified("changing", "--write", str(file)) == 2
    assert "whole ledger" in capsys.readouterr().err
    assert checked == []
    assert verified("--write", str(file)) == 0
    whole = file.read_text()
    assert whole == page([check(c) for c in claims.ledger()]).replace("| 4 |", "| 2 |")
    assert verified("changing", "--write", str(file)) == 0
    assert file.read_text() == whole.replace("| 2 |", f"| {len(checked)} |")
    claims._REGISTRY.pop("wen2023/a-good")
    register("new", lambda: equal(1, 1, 0))
    assert verified("new", "--write", str(file)) == 0
    assert [line.split("`")[1] for line in file.read_text().splitlines() if "| `" in line] == [
        "changing",
        "new",
    ]
    assert verified("nothing") == 2


def test_verify_refuses_what_it_cannot_do_before_it_checks_anything(tmp_path, capsys):
    checked = []
    register("good", lambda: checked.append(1) or equal(1, 1, 0))
    (tmp_path / "file").touch()
    assert verified("--store", str(tmp_path / "file")) == 2
    assert main(["verify", "--workers", "0"]) == 2
    assert "workers must be at least 1, not 0" in capsys.readouterr().err
    assert checked == []


def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    register("good", lambda: equal(1, 1, 0))
    assert verified("--write", str(tmp_path)) == 2
    assert f"Cannot write {tmp_path}: Is a directory" in capsys.readouterr().err
