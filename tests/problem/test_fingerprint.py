"""A fingerprint tells what code computes: its source and all values that it reads."""

import subprocess
import sys

import pytest

from flattest.problem.fingerprint import fingerprint

FILE = """
import numpy as np
import flattest as ft
from helper import OFFSET

SCALE = 2.0
TABLE = np.arange(3.0)

def inner(x):
    return SCALE * x

def function(x, power=2):
    return inner(x) ** power + TABLE[0] + OFFSET

def made(rate):
    def step(x):
        return x - rate
    return step

STEP = made(0.1)

class Law(ft.Distribution, frozen=True):
    def sample(self, rng, n):
        return rng.normal(size=(n, self.d)) * SCALE, np.ones(n)
"""


def fingerprints(folder, text=FILE, helper="OFFSET = 1.0"):
    """In a process of its own, as another day has it: function, closure and class."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lab.py").write_text(text)
    (folder / "helper.py").write_text(helper)
    script = (
        "import lab; from flattest.problem.fingerprint import fingerprint as f; "
        "print(f(lab.function), f(lab.STEP), f(lab.Law))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True
    )
    return found.stdout.split()


@pytest.mark.slow
def test_a_moved_file_is_the_same_and_a_changed_constant_is_another(tmp_path):
    function, step, law = first = fingerprints(tmp_path / "a")
    assert fingerprints(tmp_path / "b" / "c") == first
    scaled = fingerprints(tmp_path / "d", FILE.replace("SCALE = 2.0", "SCALE = 3.0"))
    assert (scaled[0] != function, scaled[1] == step, scaled[2] != law) == (True, True, True)
    array = fingerprints(tmp_path / "e", FILE.replace("arange(3.0)", "arange(4.0)"))
    assert (array[0] != function, array[1:] == [step, law]) == (True, True)
    closure = fingerprints(tmp_path / "f", FILE.replace("made(0.1)", "made(0.2)"))
    assert (closure[0] == function, closure[1] != step) == (True, True)
    default = fingerprints(tmp_path / "g", FILE.replace("power=2", "power=3"))
    assert default[0] != function
    imported = fingerprints(tmp_path / "h", helper="OFFSET = 2.0")
    assert (imported[0] != function, imported[1] == step) == (True, True)
    inside = fingerprints(tmp_path / "i", FILE.replace("SCALE * x\n", "SCALE + x\n"))
    assert inside[0] != function


def test_closures_are_told_apart_by_their_values_and_recursion_ends():
    def made(rate):
        def step(x):
            return step(x - rate) if x > 0 else rate

        return step

    assert fingerprint(made(1)) == fingerprint(made(1))
    assert fingerprint(made(1)) != fingerprint(made(2))
    assert fingerprint([1, 2.0, "a"]) != fingerprint([1, 2.0, "b"])
