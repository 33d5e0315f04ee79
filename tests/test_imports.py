"""Imports point one way: problem → rescaling → curvature → … → runs → papers → report → cli."""

import ast
from fnmatch import fnmatch
from pathlib import Path

import pytest

import flattest

SOURCE = Path(flattest.__file__).parent
HOMES = flattest._HOMES
LEVELS = [
    {"errors", "files", "machine", "compiled", "evidence", "palette"},
    {"problem"},
    {"rescaling"},
    {"curvature"},
    {"flatness"},
    {"torch", "stability"},
    {"training"},
    {"experiments"},
    {"runs"},
    {"lab", "ledger"},
    {"papers", "studies"},
    {"report", "papers.*.page", "papers.*.picture", "studies.*.picture", "examples"},
    {"cli", "__main__"},
]


def level_of(module: str) -> int:
    """The level of the pattern that says most about a module, "problem.data" say."""
    found = [
        (len(pattern), level)
        for level, patterns in enumerate(LEVELS)
        for pattern in patterns
        if fnmatch(module, pattern) or fnmatch(module, f"{pattern}.*")
    ]
    assert found, f"give {module} a level"
    return max(found)[1]


def imported(path: Path) -> set[str]:
    """The flattest modules that a file imports, wherever the import stands, the homes of the
    public names that it uses as `ft.name` included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ft":
            home = HOMES[node.attr]
            found.add(f"flattest.{node.attr}" if home == "flattest" else home)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in inside if is_module(name)} or {node.module}
    return {name.removeprefix("flattest.") for name in found if name.startswith("flattest.")}


def is_module(name: str) -> bool:
    path = SOURCE.parent / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def own(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


FILES = sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_module_imports_only_from_its_level_and_below(path):
    level = level_of(own(path))
    assert not {name for name in imported(path) if level_of(name) > level}


def test_modules_do_not_import_each_other_in_circles():
    graph = {own(path): imported(path) - {own(path)} for path in FILES}
    while graph:
        leaves = {name for name, needs in graph.items() if not needs & set(graph)}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {name: needs for name, needs in graph.items() if name not in leaves}


def test_an_import_from_above_would_be_noticed(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text(
        "import flattest as ft\n"
        "def f():\n    from flattest.training import run\n    import flattest.cli\n    ft.Store\n"
    )
    assert imported(file) == {"training.run", "cli", "runs.store"}
    assert level_of("training.run") > level_of("curvature.operator")


def test_arrays_are_read_and_written_in_one_place():
    words = ("import safetensors", "from safetensors", "np.load(", "np.save")
    found = {own(p) for p in FILES if any(word in p.read_text() for word in words)}
    assert found == {"files"}


def test_there_is_no_utils():
    assert not [p for p in FILES if "util" in p.stem]
