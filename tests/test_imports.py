"""Imports point one way: data, models, losses → measures → constructions → train → … → cli."""

import ast
from pathlib import Path

import pytest

import flattest

SOURCE = Path(flattest.__file__).parent
LEVELS = [
    {"errors", "processes", "randomness", "certificate", "store", "user_file"},
    {"activations", "data", "models", "losses"},
    {
        "balancing",
        "bounds",
        "interpolators",
        "measure",
        "multi_index",
        "parameters",
        "sharpness",
        "stability",
        "symmetry",
        "torch",
    },
    {"constructions", "algorithms"},
    {"train"},
    {"search", "experiments", "claims"},
    {"runner"},
    {"export", "judge", "plots", "report", "summary", "sweep"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}


def imported(path: Path) -> set[str]:
    """The flattest modules (first component) that a file imports, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "flattest":
            found |= {f"flattest.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module)
    return {name.split(".")[1] for name in found if name.startswith("flattest.")}


def own(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_module_imports_only_from_its_level_and_below(path):
    assert own(path) in LEVEL, f"give {own(path)} a level"
    level = LEVEL[own(path)]
    # A module without a level fails in its own row.
    assert not {name for name in imported(path) if LEVEL.get(name, level) > level}


def test_modules_of_one_level_do_not_import_each_other_in_circles():
    graph: dict[str, set[str]] = {}
    for path in FILES:
        graph.setdefault(own(path), set()).update(imported(path) - {own(path)})
    while graph:
        leaves = {name for name, needs in graph.items() if not needs & set(graph)}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {name: needs for name, needs in graph.items() if name not in leaves}


def test_an_import_from_above_would_be_noticed(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("def f():\n    from flattest import train\n    import flattest.cli\n")
    assert imported(file) == {"train", "cli"}
    assert LEVEL["train"] > LEVEL["sharpness"]


def test_there_is_no_utils():
    assert not [p for p in FILES if "util" in p.stem]
