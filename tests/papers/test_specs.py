"""Specs are light: `flattest list` reads every one of them and computes nothing."""

import ast

import pytest

import flattest
from flattest.experiments.registry import papers
from support.places import ROOT

SOURCE = ROOT / "src" / "flattest"
SPECS = [
    SOURCE / "lab" / "setup.py",
    SOURCE / "lab" / "challenge.py",
    SOURCE / "experiments" / "registry.py",
    *(p.folder / "experiments.py" for p in papers().values()),
    SOURCE / "studies" / "question1" / "attack.py",
    SOURCE / "studies" / "question1" / "columns.py",
    SOURCE / "studies" / "question1" / "diagram.py",
    SOURCE / "studies" / "question1" / "digits.py",
    SOURCE / "studies" / "question1" / "faces.py",
    SOURCE / "studies" / "question1" / "small.py",
    SOURCE / "studies" / "question1" / "width.py",
    *(SOURCE / "studies" / "question2" / f"{name}.py" for name in ("decides", "limits", "ways")),
]
LIGHT = (
    "flattest.errors",
    "flattest.experiments",
    "flattest.lab.challenge",
    "flattest.lab.setup",
    "flattest.problem",
    "flattest.studies.question1",
    "flattest.studies.question2",
    "flattest.training.algorithms",
    "flattest.training.flows",
    "flattest.training.log",
    "flattest.training.run",
    "numpy",
    "msgspec",
)


def imported(path):
    """What a module imports when it is imported, the homes of the public names it uses included."""
    for node in run_on_import(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name != "flattest")
        if isinstance(node, ast.ImportFrom):
            yield node.module
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ft":
            yield getattr(flattest, node.attr).__module__


def run_on_import(node):
    """The nodes of a module but for the bodies of its functions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.FunctionDef) and child in node.body):
            yield from run_on_import(child)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_spec_imports_no_numerics(path):
    heavy = ("flattest", "jax", "scipy", "numba", "matplotlib")
    found = {name for name in imported(path) if name.split(".")[0] in heavy}
    others = {name for name in found if not name.startswith(LIGHT)}
    assert others <= {"flattest.papers.wen2023", "flattest.papers.wen2023.experiments"}
