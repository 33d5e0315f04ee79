"""`flattest interpolate`: the exit code says whether the optimum is certified."""

import json

import numpy as np
import pytest

from flattest.cli._dispatch import main
from flattest.flatness.interpolators import dual_bound


@pytest.fixture
def problem(tmp_path):
    rng = np.random.default_rng(0)
    stored = {"features": rng.standard_normal((6, 12)), "y": rng.standard_normal(6)}
    np.savez(tmp_path / "problem.npz", **stored)
    return tmp_path / "problem.npz", stored


def test_a_certified_optimum_is_printed_and_written(problem, tmp_path, capsys):
    path, stored = problem
    out = tmp_path / "solution.npz"
    assert main(["interpolate", str(path), "--p", "1.5", "--out", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["status"] == "optimal"
    with np.load(out) as solution:
        assert np.sum(np.abs(solution["a"]) ** 1.5) == pytest.approx(printed["value"])
        bound = dual_bound(stored["features"], stored["y"], 1.5, solution["dual"])
    assert bound == pytest.approx(printed["value"], rel=1e-9)


def test_an_infeasible_problem_exits_1_with_its_reason(tmp_path, capsys):
    features = np.ones((3, 5))
    np.savez(tmp_path / "bad.npz", features=features, y=np.arange(3.0))
    assert main(["interpolate", str(tmp_path / "bad.npz"), "--p", "1"]) == 1
    assert "inconsistent" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npz", "--p", "1"], "There is no file missing.npz"),
        (["PROBLEM", "--p", "3"], "must lie in"),
    ],
)
def test_bad_input_exits_2_with_one_sentence(problem, capsys, arguments, message):
    arguments = [str(problem[0]) if a == "PROBLEM" else a for a in arguments]
    assert main(["interpolate", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_broken_file_is_refused(tmp_path, capsys):
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 not a zip")
    assert main(["interpolate", str(tmp_path / "broken.npz"), "--p", "1"]) == 2
    assert "cannot be read as an .npz" in capsys.readouterr().err


def test_a_file_with_other_arrays_is_refused(tmp_path, capsys):
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    assert main(["interpolate", str(tmp_path / "other.npz"), "--p", "1"]) == 2
    assert "must hold features, y" in capsys.readouterr().err
