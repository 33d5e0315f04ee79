"""Phase diagrams."""

import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.cli._dispatch import main
from flattest.errors import FlattestError
from flattest.experiments.training import Training
from flattest.lab.challenge import Challenge
from flattest.lab.diagram import phase_diagrams
from flattest.lab.sweep import SETTINGS, Axis, axis, sweep
from flattest.runs.store import Store

SETUP = ft.Setup(
    name="tiny",
    distribution=ft.Xor(6),
    n=20,
    model=ft.MLP(20),
    algorithm=(ft.sam(0.02, 0.05, epochs=5),),
    log=ft.Log(points=4),
)


def lab(folder):
    """A file with a setup of two seeds."""
    file = folder / "lab.py"
    file.write_text(
        "import flattest as ft\n\ndef setup():\n    return ft.Setup(name='a', n=9, seeds=2, "
        "distribution=ft.Xor(4), model=ft.MLP(5), algorithm=(ft.gd(0.1, epochs=1),))\n"
    )
    return file


def test_ranges_are_cut_evenly_in_the_logarithm_and_whole_where_they_must_be():
    assert axis("n=50:800:5") == Axis("n", (50, 100, 200, 400, 800))
    assert axis("rho=0.05,0.1") == Axis("rho", (0.05, 0.1))
    assert len(axis("d=10:60").values) == 6


def test_the_values_of_an_axis_increase_in_whatever_order_they_are_said():
    assert axis("n=20,10,15,10.2") == Axis("n", (10, 15, 20))


@pytest.mark.parametrize(
    "text", ["n", "n=", "n=9:3", "n=-1,2", "n=1:2:3:4", "n=5:inf", "n=5:9:nan"]
)
def test_what_is_not_a_range_is_refused(text):
    with pytest.raises(FlattestError, match="is not an axis"):
        axis(text)


def test_an_unknown_setting_is_refused_with_the_valid_ones():
    with pytest.raises(FlattestError, match="epochs, lr, n, rho, width"):
        axis("depth=2:3")


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_changes_what_is_trained(setting):
    changed = SETTINGS[setting](SETUP, 7)
    assert changed.training(changed.algorithm) != SETUP.training(SETUP.algorithm)


def test_a_diagram_has_the_mean_error_of_every_cell_and_theorem_31s_line(tmp_path):
    x, y = axis("n=8,32"), axis("d=4,6")
    diagram = sweep(SETUP, x, y, 1, Store.create(tmp_path / "store"), workers=1)
    assert np.shape(diagram.error) == (2, 2)
    assert np.isfinite(diagram.error).all()
    (ax, _) = phase_diagrams([diagram]).axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["8", "32"]
    assert [line.get_label() for line in ax.lines] == ["n = d log d"]


def test_one_setting_cannot_be_both_axes(tmp_path):
    with pytest.raises(FlattestError, match="given twice"):
        sweep(SETUP, axis("n=8,9"), axis("n=8,9"), 1, Store.create(tmp_path / "s"), workers=1)


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        (["--over", "n=8,9"], "two settings"),
        (["--over", "n=8,9", "--over", "n=8,9"], "n is given twice"),
    ],
)
def test_the_command_takes_one_setting_after_each_over(over, sentence, tmp_path, capsys):
    file = lab(tmp_path)
    assert main(["sweep", f"{file}:setup", *over, "--store", str(tmp_path / "s")]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("command", ["judge", "sweep"])
def test_runs_that_fail_are_not_passed_over(command, tmp_path, capsys, monkeypatch):
    def execute(self, seed, place):
        raise FlattestError("The lamp is out.")

    monkeypatch.setattr(Training, "execute", execute)
    monkeypatch.setattr(Challenge, "execute", execute)
    monkeypatch.chdir(tmp_path)
    file = lab(tmp_path)
    over = ["--over", "n=8,9", "--over", "d=4,5", "--seeds", "1"] if command == "sweep" else []
    assert main([command, f"{file}:setup", *over, "--workers", "1"]) == 1
    said = "4 runs have no result" if over else "2 of 2 runs failed: The lamp is out."
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "gd"},
        {"distribution": ft.xor(9, 4)},
        {"distribution": "xor"},
        {"n": 20.5},
    ],
)
def test_a_setup_refuses_what_is_of_the_wrong_kind(change):
    (name,) = change
    with pytest.raises(FlattestError, match=f"A setup's {name} cannot be this"):
        msgspec.structs.replace(SETUP, **change)
