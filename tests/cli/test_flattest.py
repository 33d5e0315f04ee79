"""`flattest flattest` and `flattest range`."""

import json

import numpy as np
import pytest

import flattest as ft
from flattest.cli._dispatch import main


def test_the_flattest_network_is_printed_and_written(tmp_path, capsys):
    out = tmp_path / "flattest.safetensors"
    data = ["--distribution", "ball", "--n", "6", "--d", "2", "--bias"]
    assert main(["flattest", *data, "-o", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    network = ft.load_network(out)
    trace = float(ft.trace(network.model, network.params, network.data))
    assert trace == pytest.approx(printed["least trace"], rel=1e-5)
    assert printed["proven bound"] <= trace


def test_ranges_at_points_of_a_file_and_of_the_distribution(tmp_path, capsys):
    np.savez(tmp_path / "points.npz", x=[[2.0, 0.0], [1.0, 1.0]])
    np.savez(tmp_path / "data.npz", x=[[1.0, 0.0], [0.0, 1.0]], y=[1.0, 2.0])
    files = ["--data", str(tmp_path / "data.npz"), "--points", str(tmp_path / "points.npz")]
    assert main(["range", *files, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["least"][0] == pytest.approx(2.0)
    assert main(["range", "--distribution", "xor", "--n", "3", "--d", "2"]) == 0
    assert "flattest networks without dead neurons" in capsys.readouterr().out
    assert main(["range", "--data", str(tmp_path / "data.npz")]) == 2
    assert "--points" in capsys.readouterr().err
    assert main(["flattest", "--distribution", "xor"]) == 2
    assert "activation patterns" in capsys.readouterr().err
