"""Weights from PyTorch's own files: the weights alone, never code."""

import numpy as np
import pytest

import flattest as ft

pytestmark = pytest.mark.peer


@pytest.fixture
def torch():
    return pytest.importorskip("torch", exc_type=ImportError)


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}])
def test_the_weights_in_a_file_of_pytorchs_are_read(torch, tmp_path, wrap):
    module = torch.nn.Linear(3, 2)
    torch.save(wrap(module.state_dict()), tmp_path / "weights.pt")
    found = ft.load_params(tmp_path / "weights.pt")
    assert np.array_equal(found["weight"], module.weight.detach().double().numpy())
    assert set(found) == {"weight", "bias"}


def test_a_file_that_holds_more_than_weights_is_refused_with_what_to_do(torch, tmp_path):
    torch.save(torch.nn.Linear(3, 2), tmp_path / "module.pt")
    torch.save([1, 2], tmp_path / "list.pth")
    (tmp_path / "text.pt").write_text("no weights")
    for name, sentence in {
        "module.pt": "holds more than weights",
        "list.pth": "holds no dict of tensors",
        "text.pt": "holds more than weights",
    }.items():
        with pytest.raises(ft.FlattestError, match=f"{sentence}.*save_file"):
            ft.load_params(tmp_path / name)
