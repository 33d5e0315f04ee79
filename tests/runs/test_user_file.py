"""A user's Python file: what it may contain, what it may be called, where its output goes."""

import json
import sys
from importlib.machinery import PathFinder

import pytest

from flattest.cli._user_file import load, run
from flattest.errors import FlattestError
from flattest.runs.cluster import cluster
from flattest.runs.user_file import Reference
from support.tasks import has_loaded

LAB = """
from __future__ import annotations
import dataclasses
from beside_the_lab import LR
print("loading")

@dataclasses.dataclass
class Mine:
    lr: float = LR

def setup():
    print("making")
    return Mine()
"""


@pytest.fixture(autouse=True)
def own_path(monkeypatch):
    """The folders that are put on the path in a test are off it in the next."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def lab(tmp_path):
    (tmp_path / "beside_the_lab.py").write_text("LR = 0.1\n")
    file = tmp_path / "my.läb-1.py"
    file.write_text(LAB)
    return file


def test_a_file_may_import_its_neighbours_and_define_dataclasses(lab):
    assert load(f"{lab}:setup")().lr == 0.1


def test_what_a_file_prints_goes_to_the_error_stream(lab, capsys):
    run(load(f"{lab}:setup"), "setup")
    assert capsys.readouterr() == ("", "loading\nmaking\n")


def test_a_file_does_not_stand_in_for_a_module_of_its_name(tmp_path):
    file = tmp_path / "json.py"
    file.write_text("def setup(): pass\n")
    load(f"{file}:setup")
    assert sys.modules["json"] is json
    assert PathFinder.find_spec("json").origin == json.__file__


@pytest.mark.slow
def test_workers_import_a_file_whatever_its_name_and_keep_the_output_clean(lab, capfd):
    with cluster(1, None, Reference(lab, "setup")) as client:
        assert client.submit(has_loaded, "my.läb-1").result()
    out, err = capfd.readouterr()
    assert out == ""
    assert "loading" in err


@pytest.mark.slow
def test_workers_that_cannot_start_are_one_sentence(tmp_path):
    file = tmp_path / "lab.py"
    file.write_text("raise ValueError('not here')\n")
    with (
        pytest.raises(FlattestError, match="cannot start: not here; --workers 1"),
        cluster(1, None, Reference(file, "setup")),
    ):
        pass


def test_a_file_that_ends_the_program_or_whose_error_has_no_message_is_one_sentence(tmp_path):
    file = tmp_path / "lab.py"
    file.write_text("import sys\nsys.exit('bye')\n")
    with pytest.raises(FlattestError, match=r"ended the program, by sys.exit\('bye'\)"):
        load(f"{file}:setup")
    file.write_text("class Mute(Exception):\n    def __str__(self): raise ValueError\nraise Mute\n")
    with pytest.raises(FlattestError, match="with Mute: .its message cannot be made"):
        load(f"{file}:setup")
