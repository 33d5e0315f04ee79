"""The examples are judged: each setup as it stands, with fewer epochs, seeds and steps."""

import runpy

import msgspec
import pytest

import flattest as ft
from support.places import ROOT

SETUPS = {
    "own_lab.py": ["parity", "network", "step", "digits", "asam", "adam"],
    "libraries_lab.py": ["equinox_mlp", "flax_mlp", "torch_cnn"],
}
NEEDS = {"digits": "sklearn", "equinox_mlp": "equinox", "flax_mlp": "flax", "torch_cnn": "torch"}
CASES = [
    pytest.param(file, name, marks=[pytest.mark.peer] * (name in NEEDS))
    for file, names in SETUPS.items()
    for name in names
]


def small(setup):
    """The same question at a smaller scale, challenged on a network that takes a moment."""
    challenge = ft.Challenge(
        distribution=ft.Xor(4), n=8, model=ft.MLP(12, bias=True), wrong=2, steps=5
    )
    phases = tuple(msgspec.structs.replace(phase, epochs=3) for phase in setup.algorithm)
    return msgspec.structs.replace(
        setup,
        algorithm=phases,
        seeds=1,
        challenges=1,
        challenge=challenge,
        log=ft.Log(points=1, measures=("training", "sharpness", "test")),
    )


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name"), CASES)
def test_an_example_is_judged(file, name, tmp_path):
    pytest.importorskip(NEEDS.get(name, "numpy"), exc_type=ImportError)
    asked = runpy.run_path(str(ROOT / "examples" / file))[name]()
    found = ft.judge(small(asked), tmp_path / "store")
    assert found.scenario in repr(found)
    (error,) = found.algorithm_generalizes.verdict.values
    assert 0 <= error <= 1


@pytest.mark.peer
@pytest.mark.slow
def test_the_challenge_of_the_torch_example_descends_from_wrong_labels():
    pytest.importorskip("torch", exc_type=ImportError)
    asked = runpy.run_path(str(ROOT / "examples" / "libraries_lab.py"))["torch_cnn"]()
    found = msgspec.structs.replace(asked.challenge, n=20, wrong=5, steps=3).compute(0)
    assert found["sharpness"] < found["start_sharpness"]
    assert found["interpolation_error"] < 1e-9
    assert found["converged"] == 0
