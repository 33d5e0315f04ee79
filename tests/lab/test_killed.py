"""A user's model, data and optimizer, killed −9 half way: the run goes on with the same bits.

PyTorch's bits are those of the same machine with as many threads.
"""

import signal
import subprocess
import sys

import numpy as np
import pytest

from flattest.files import read_tensors
from support.places import ENVIRONMENT, TESTS

pytestmark = [pytest.mark.peer, pytest.mark.slow]


def in_a_process(*arguments):
    script = str(TESTS / "support" / "killed_lab.py")
    return subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )


def last_saved(folder):
    arrays, _ = read_tensors(sorted((folder / "scratch").glob("*.safetensors"))[-1])
    return arrays


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_a_killed_run_of_a_users_own_goes_on_with_the_same_bits(name, tmp_path):
    pytest.importorskip({"jax": "equinox", "torch": "torch"}[name])
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert in_a_process(name, whole).returncode == 0
    assert in_a_process(name, killed, 40).returncode == -signal.SIGKILL
    assert 40 <= last_saved(killed)["series/epoch"][-1] < 120
    assert any(part.startswith("memory/") for part in last_saved(killed))
    assert in_a_process(name, killed).returncode == 0
    found, expected = last_saved(killed), last_saved(whole)
    assert set(found) == set(expected)
    for part, value in expected.items():
        assert np.array_equal(found[part], value, equal_nan=True), part
