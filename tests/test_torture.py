"""The table of torture says how far each part came; what is lost is told; cuts change no bit."""

import importlib
import random
import sys
import time

import pytest

from support.places import ROOT


@pytest.fixture
def torture(monkeypatch):
    """The script, whose neighbours are modules of their own only while it is here."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(ROOT / "torture")
    module = importlib.import_module("torture")
    monkeypatch.setattr(module, "PARTS", {"five": (lambda rng, folder, n: iter(["well"] * n), 5)})
    yield module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "torture")):
            del sys.modules[name]


def cases(torture, until):
    line = torture.row("five", 5, *torture.tortured("five", 5, until), "0" * 12)
    return line.split("|")[2].strip()


def test_a_part_that_did_not_reach_its_count_says_so(torture):
    assert cases(torture, time.monotonic() + 60) == "5"
    assert cases(torture, time.monotonic() - 1) == "1 of 5"


def test_a_part_that_died_has_a_row_without_cases(torture, monkeypatch):
    monkeypatch.setattr(torture.sys, "executable", "/bin/false")
    _, line, well = torture.in_a_process("five", 1.0, time.monotonic())
    assert "| five | 0 of 5 |" in line
    assert not well


def test_what_is_lost_is_told_and_kept(torture, tmp_path, monkeypatch):
    """Which arrays differ, what the stores say, and the stores themselves."""
    kills, children = importlib.import_module("kills"), importlib.import_module("children")
    monkeypatch.setattr(children, "DETAILS", tmp_path / "details")
    monkeypatch.setattr(kills.engines, "run", lambda e, root: None)
    monkeypatch.setattr(kills.tempfile, "mkdtemp", lambda prefix: str(tmp_path / prefix))
    monkeypatch.setattr(
        kills, "bits", lambda *_: {"seed 0 params W1": b"1", "seed 0 params W2": b"2"}
    )
    monkeypatch.setattr(kills, "CALM", tmp_path / "calm")
    root, killed = tmp_path / "ended", tmp_path / "killed"
    for store in (root, killed):
        key = kills.Store.create(store).add(kills.engines.tasks()["leaky"], 0, "torture/leaky")
    calm = {"seed 0 params W1": b"1", "seed 0 params W2": b"3"}
    assert kills.again("leaky", root, calm, "runner", killed) == "lost"
    told = (tmp_path / "details").read_text()
    assert "leaky after its runner was disturbed: seed 0 params W2\n" in told
    assert told.count(f"{key}: {{'status': 'not begun'}}") == 2
    assert "status: seed 0 pending" in told
    for what in ("killed", "ended"):
        assert (tmp_path / "torture-lost-leaky-" / what / "runs" / key / "spec.json").exists()


@pytest.mark.parametrize("name", ["noise, decay", "Sim-BN", "diverges"])
def test_cuts_anywhere_change_no_bit(torture, name, tmp_path):
    cuts = importlib.import_module("cuts")
    case = cuts.kernels("float32")[f"kernels float32 {name}"]
    ways = [*cuts.tried(case, tmp_path, random.Random(0), 2)]
    assert len(ways) >= 10
    assert [way for way, others in ways if others] == []


def test_a_bit_that_a_cut_changes_is_named(torture, tmp_path, monkeypatch):
    cuts = importlib.import_module("cuts")
    case, load = cuts.kernels("float32")["kernels float32 gelu"], cuts.Checkpoints.load

    def other(self):
        saved = load(self)
        if saved is not None:
            saved[0].params["W1"].view("int32")[0, 0] ^= 1
        return saved

    monkeypatch.setattr(cuts.Checkpoints, "load", other)
    ways = dict(cuts.tried(case, tmp_path, random.Random(0), 1))
    assert ways["pace 0.001"] == []
    assert "params W1" in ways["every save"]


@pytest.mark.parametrize("what", ["no save", "no cut"])
def test_a_run_that_was_not_cut_is_no_success(torture, tmp_path, monkeypatch, what):
    cuts = importlib.import_module("cuts")
    case, save = cuts.kernels("float32")["kernels float32 gelu"], cuts.Checkpoints.save
    if what == "no cut":
        never = property(lambda own: (), lambda own, at: None)
        monkeypatch.setattr(cuts.Saves, "at", never, raising=False)
        words = "was not cut at save"
    else:
        saves = cuts.Saves.__enter__

        def uncounted(own):
            found = saves(own)
            cuts.Checkpoints.save = save
            return found

        monkeypatch.setattr(cuts.Saves, "__enter__", uncounted)
        words = "without a save"
    with pytest.raises(AssertionError, match=words):
        list(cuts.tried(case, tmp_path, random.Random(0), 1))


def test_cuts_write_their_rows_into_their_own_table(torture, tmp_path, monkeypatch):
    """With the commit; rows of other engines and the table of torture stay."""
    cuts, tables = importlib.import_module("cuts"), importlib.import_module("tables")
    document = tmp_path / "reliability.md"
    other, end = (
        "| flow | 9 |",
        "<!-- end -->\nafter\n<!-- torture -->\n| flips | 500 |\n<!-- end -->\n",
    )
    document.write_text(f"before\n{cuts.BEGIN}\n{cuts.HEAD}{other}\n{end}", encoding="utf-8")
    monkeypatch.setattr(tables, "DOCUMENT", document)
    monkeypatch.setattr(cuts, "counted", lambda *_: cuts.Counter(same=7))
    words = ["cuts", "kernels float32 gelu", "--most", "1", "--write"]
    monkeypatch.setattr(sys, "argv", words)
    assert cuts.main() == 0
    before, _, rest = document.read_text(encoding="utf-8").partition(cuts.HEAD)
    row, kept, after = rest.split("\n", 2)
    assert row.startswith("| kernels float32 | 1 of 12 | at most 1 a run | 7 | 0 | 0 | ")
    assert row.split("|")[-2].strip() == tables.source_of_this()
    assert (before, kept, after) == (f"before\n{cuts.BEGIN}\n", other, end)
