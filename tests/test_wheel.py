"""The wheel works away from the checkout, in an empty folder.

The dependencies are those of the environment that runs the tests, or, where FLATTEST_FRESH names a
Python (`make test-wheel`), those of a fresh environment that has nothing but the wheel.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from support.places import ROOT

FRESH = os.environ.get("FLATTEST_FRESH")
PACKAGED = ("src", "pyproject.toml", "README.md", "LICENSE")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """`make test-wheel` has built it; else it is built from a copy of what the package consists of,
    so that nothing is written to the checkout."""
    if FRESH:
        (made,) = (ROOT / "build" / "wheel").glob("*.whl")
        return made
    folder = tmp_path_factory.mktemp("wheel")
    for name in PACKAGED:
        path = ROOT / name
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, folder / name)
    build = ["pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(folder)]
    subprocess.run([sys.executable, "-m", *build], check=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(request, tmp_path_factory):
    """How Python is called with the wheel's package, and in which environment."""
    if FRESH:
        return FRESH, {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(request.getfixturevalue("wheel")) as archive:
        archive.extractall(folder)
    return sys.executable, os.environ | {"PYTHONPATH": str(folder)}


@pytest.fixture
def python(installed, cwd):
    executable, environment = installed

    def called(*arguments):
        done = subprocess.run(
            [executable, *arguments], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return called


@pytest.fixture
def flattest(python):
    return lambda *arguments: python("-m", "flattest", *arguments)


def test_the_wheel_is_what_is_imported(python):
    place = python("-c", "import flattest; print(flattest.__file__)")
    assert not Path(place.strip()).is_relative_to(ROOT / "src")


def test_it_has_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("flattest/")}
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "flattest").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == source


def test_it_lists_the_experiments(flattest):
    assert "wen2023/fig4b" in flattest("list")


def test_it_measures_the_shipped_example(flattest):
    flattest("example")
    arguments = ("net.safetensors", "--model", "net.py:build", "--data", "data.npz", "--json")
    found = json.loads(flattest("measure", *arguments))
    assert found["trace"] / found["least"] > 5


def test_it_draws_a_figure(flattest):
    flattest("run", "fig3")
    flattest("plot", "fig3")
    assert {p.suffix for p in Path("out/figures/wen2023").iterdir()} == {".png", ".svg", ".pdf"}


def test_the_readme_s_example_runs(python):
    (example, *_) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert "finished" in python("-c", example)


@pytest.mark.skipif(not FRESH, reason="a minute of training; `make test-wheel` does it")
def test_it_runs_figure_4b(flattest):
    assert "✓ wen2023/fig4b" in flattest("run", "fig4b", "--seeds", "1")


def test_one_version_is_said_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_import_of_another_package_is_a_dependency_or_an_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    asked = {re.split(r"[\[<>=]", name)[0] for name in [*project["dependencies"], *extras]}
    called = {"sklearn": "scikit-learn", "dask": "distributed"}
    found = {
        called.get(name, name)
        for path in (ROOT / "src").rglob("*.py")
        for name in imported(path)
        if name not in sys.stdlib_module_names
    }
    brought = {"flattest", "setuptools", "jaxlib", "tornado", "llvmlite"}
    brought.add("wandb")  # whoever logs to it has it
    assert found - brought <= asked


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]


NOTEBOOK = ROOT / "docs" / "gallery" / "flattest.ipynb"


def test_the_notebook_s_cells_run_one_after_another(python):
    cells = [c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"]
    program = ["import matplotlib; matplotlib.use('agg')", *("".join(c["source"]) for c in cells)]
    assert "finished" in python("-c", "\n".join(program))


RUN_BY_JUPYTER = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
nbformat.write(notebook, "executed.ipynb")
"""


@pytest.mark.skipif(not FRESH, reason="needs Jupyter; `make test-wheel` installs it afterwards")
@pytest.mark.jupyter
def test_jupyter_runs_the_notebook_from_top_to_bottom(python):
    python("-c", RUN_BY_JUPYTER, str(NOTEBOOK))
    cells = [c for c in json.loads(Path("executed.ipynb").read_text())["cells"] if "outputs" in c]
    assert [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1))
    kinds = {kind for c in cells for o in c["outputs"] for kind in o.get("data", {})}
    assert "image/png" in kinds
    assert "finished" in "".join(cells[-1]["outputs"][0]["text"])
