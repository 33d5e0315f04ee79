"""Every module is what its path says, and every public name is there."""

import ast
import contextlib
import importlib
import importlib.util
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import flattest
from flattest.errors import FlattestError

NEEDS_TORCH = importlib.util.find_spec("torch") is None
STUB = ast.parse(Path(flattest.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
PUBLIC = [
    (alias.name, str(node.module))
    for node in STUB.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
]


def modules():
    """Every module of the package by its path, those that need PyTorch where it is installed."""
    for found in pkgutil.walk_packages(flattest.__path__, "flattest."):
        missing = (ImportError, FlattestError) if NEEDS_TORCH else ()
        with contextlib.suppress(*missing):
            yield found.name, importlib.import_module(found.name)


def test_no_name_hides_a_module():
    found = dict(modules())
    assert len(found) > 100
    for path, module in found.items():
        parent, _, name = path.rpartition(".")
        assert getattr(importlib.import_module(parent), name) is module, path


@pytest.mark.parametrize(("name", "home"), PUBLIC)
def test_a_public_name_is_that_of_its_module(name, home):
    if name == "torch" and NEEDS_TORCH:
        pytest.skip("PyTorch is not installed")
    value = getattr(flattest, name)
    assert name in dir(flattest)
    if isinstance(value, ModuleType):
        assert value is importlib.import_module(f"{home}.{name}")
    else:
        assert value is getattr(importlib.import_module(home), name)
        assert importlib.util.find_spec(f"flattest.{name}") is None, "it would hide a module"


def test_an_unknown_name_is_refused_with_a_sentence():
    with pytest.raises(AttributeError, match="flattest has no public name 'no_such_name'"):
        _ = flattest.no_such_name


def test_the_version_is_a_public_name():
    assert re.fullmatch(r"\d+\.\d+\.\d+", flattest.__version__)


def test_help_of_the_package_names_what_exists_and_its_example_runs(capsys):
    about = flattest.__doc__
    named = set(re.findall(r"\bft\.(\w+)", about))
    assert len(named) > 25
    assert named <= {name for name, _ in PUBLIC}
    example = re.search(r"(?:^    .*\n|^\n)+", about, re.MULTILINE)
    exec("\n".join(line.strip() for line in example[0].splitlines()), {})
    assert "least over rescalings" in capsys.readouterr().out


def test_asking_for_a_name_leaves_numpys_random_numbers(monkeypatch):
    """Importing JAX draws some."""
    real = importlib.import_module

    def drawing(name):
        np.random.rand()
        return real(name)

    monkeypatch.setattr(flattest.importlib, "import_module", drawing)
    monkeypatch.delitem(vars(flattest), "MLP", raising=False)
    before = np.random.get_state()
    assert flattest.MLP.__name__ == "MLP"
    assert all(np.array_equal(*pair) for pair in zip(before, np.random.get_state(), strict=True))
