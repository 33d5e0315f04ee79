"""`flattest measure` from the shell: files in, numbers and a rescaled network out."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import flattest as ft
from support.places import ROOT
from support.shell import flattest

JAX_NETWORK = """
import jax
def build():
    return lambda p, x: jax.nn.relu(x @ p["W"]) @ p["a"]
def fails():
    raise RuntimeError("no such layer")
"""
TORCH_NETWORK = """
from torch import nn
def build():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.BatchNorm1d(3), nn.Linear(3, 2))
"""


@pytest.fixture
def files():
    rng = np.random.default_rng(0)
    Path("net.py").write_text(JAX_NETWORK)
    save_file({"W": rng.normal(size=(4, 3)), "a": rng.normal(size=3)}, "net.safetensors")
    np.savez("data.npz", x=rng.normal(size=(5, 4)), y=rng.normal(size=5))


def measure_json(capsys, *arguments):
    code, out, err = flattest(capsys, "measure", *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.slow
def test_a_jax_network_is_measured_and_its_flattest_equivalent_written(capsys, files):
    arguments = ("--model", "net.py:build", "--data", "data.npz")
    first = measure_json(capsys, "net.safetensors", *arguments, "--out", "flat.safetensors")
    assert first["least"] < first["trace"]
    before, after = load_file("net.safetensors"), load_file("flat.safetensors")
    assert not np.allclose(before["W"], after["W"])
    second = measure_json(capsys, "flat.safetensors", *arguments)
    assert second["trace"] == pytest.approx(first["least"], rel=1e-9)
    assert second["ratio"] == pytest.approx(1, abs=1e-9)


def test_a_network_of_flattests_own_needs_nothing_else(capsys):
    data = ft.xor(n=6, d=5, distinct=True)
    made = ft.memorizer(data)
    ft.save_network("made.safetensors", ft.Network(made.model, made.params, data))
    code, out, _ = flattest(capsys, "measure", "made.safetensors")
    assert code == 0
    for word in ("least over rescalings", "wen2023, Theorem 4.1", "least / bound 1", "W1"):
        assert word in out
    code, _, err = flattest(capsys, "measure", "made.safetensors", "--loss", "half_mse")
    assert (code, "its own loss" in err) == (2, True)


@pytest.mark.peer
def test_a_torch_module_is_measured(capsys, files):
    torch = pytest.importorskip("torch", exc_type=ImportError)
    Path("torch_net.py").write_text(TORCH_NETWORK)
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)
    )
    state = {name: value.numpy() for name, value in module.state_dict().items()}
    save_file(state, "torch.safetensors")
    x, y = np.load("data.npz")["x"], np.arange(5) % 2
    np.savez("classes.npz", x=x, y=y)
    found = measure_json(
        capsys,
        *("torch.safetensors", "--model", "torch_net.py:build", "--data", "classes.npz"),
        *("--loss", "cross_entropy", "--out", "flat.safetensors"),
    )
    expected = ft.torch.measure(module.eval(), (x, y), "cross_entropy")
    assert found["trace"] == pytest.approx(expected.trace, rel=1e-9)
    assert found["least"] == pytest.approx(expected.least, rel=1e-9)
    assert set(load_file("flat.safetensors")) == set(state)


BAD = {
    "raises": (("--model", "net.py:fails", "--data", "data.npz"), "no such layer"),
    "no function": (("--model", "net.py:other", "--data", "data.npz"), "no function 'other'"),
    "no file": (("--model", "none.py:build", "--data", "data.npz"), "no file none.py"),
    "no data": (("--model", "net.py:build", "--data", "none.npz"), "no file none.npz"),
    "not arrays": (("--model", "net.py:build", "--data", "net.py"), "cannot be read as an .npz"),
    "half": (("--model", "net.py:build"), "Give both"),
    "foreign": ((), "was not written by flattest"),
    "loss": (
        ("--model", "net.py:build", "--data", "data.npz", "--loss", "hinge"),
        "cross_entropy",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_exit_code_2(capsys, files, name):
    arguments, sentence = BAD[name]
    code, out, err = flattest(capsys, "measure", "net.safetensors", *arguments)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_the_shipped_example_is_measured_as_the_readme_says(capsys, cwd):
    shown = (ROOT / "README.md").read_text().partition("```text\n")[2].partition("```")[0]
    assert flattest(capsys, "example")[0] == 0
    arguments = ("net.safetensors", "--model", "net.py:build", "--data", "data.npz")
    code, out, _ = flattest(capsys, "measure", *arguments)
    assert code == 0
    assert shown.startswith("trace ")
    assert shown in out


def test_an_example_overwrites_nothing(capsys, cwd):
    (cwd / "lab.py").write_text("mine")
    code, _, err = flattest(capsys, "example")
    assert code == 2
    assert "lab.py is there already" in err
    assert [path.name for path in cwd.iterdir()] == ["lab.py"]
