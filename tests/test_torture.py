"""The table of torture says how far each part came."""

import importlib
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
