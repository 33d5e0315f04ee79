"""The examples that `--help` shows can be pasted, in their order, into an empty folder."""

import contextlib
import io
import re
import shlex
import subprocess
import sys

import pytest

from flattest.cli import _dispatch
from support.places import ROOT

FILE = re.compile(r"[\w./-]+\.(?:safetensors|npz|json|py)\b")
WRITTEN = re.compile(r"(?:(?:-o|--out|--output|>) |savez\(')([\w./-]+\.\w+)")
EXAMPLE_FILES = {"net.safetensors", "net.py", "data.npz", "lab.py"}
# Those that train nothing and take seconds.
CHEAP = ("certify", "compare", "construct", "flattest", "interpolate", "measure", "range")


def examples(name):
    """The lines below "Examples:", continuations joined, without the words beside them."""
    text = _dispatch.docstring(_dispatch.HERE / f"{name}.py").partition("Examples:\n\n")[2]
    lines = re.sub(r" \\\n\s+", " ", text).splitlines()
    shown = [line.strip() for line in lines if line.startswith("    ")]
    return [re.split(r"\s{3,}", line)[0] for line in shown if re.match("flattest |python ", line)]


@pytest.mark.parametrize("name", _dispatch.commands())
def test_a_file_that_an_example_names_is_written_by_one_before_it(name):
    there = set()
    found = examples(name)
    assert found
    for line in found:
        if line.startswith("flattest example"):
            there = there | EXAMPLE_FILES
        named = set(FILE.findall(line)) - set(WRITTEN.findall(line))
        assert {n for n in named if not (ROOT / n).is_file()} <= there, line
        there = there | set(WRITTEN.findall(line))


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEAP)
def test_examples_run_as_they_are_shown(name, cwd):
    command = shlex.join([sys.executable, "-m", "flattest"])
    for line in examples(name):
        line = re.sub(r"\bflattest (?=[a-z])", f"{command} ", line, count=1)
        line = line.replace("&& flattest", f"&& {command}")
        line = line.replace("python -c", f"{sys.executable} -c")
        done = subprocess.run(line, shell=True, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stdout, done.stderr)


def test_help_can_be_caught_by_a_stream_without_an_encoding():
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.raises(SystemExit):
        _dispatch.main(["list", "--help"])
    assert "usage: flattest list" in said.getvalue()
