"""What the documents show, runs."""

import importlib
import os
import re
import runpy
import subprocess
import sys

import pytest

from flattest.experiments.registry import papers
from flattest.lab.summary import markdown, read_summaries
from flattest.ledger.figures import RESULTS
from support.places import ROOT

PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS_TORCH = "import torch\n"
JUDGES = "ft.judge("
DOCS = ROOT / "docs"
DOCUMENTS = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "api").glob("*.md"))]


def marks(path, block):
    """What trains by several kernels, `make test-more` runs."""
    slow = [pytest.mark.slow] if path.name == "tutorial.md" or JUDGES in block else []
    return [pytest.mark.peer, *slow] if NEEDS_TORCH in block else slow


def snippets():
    return [
        pytest.param(block, id=f"{path.name}-{number}", marks=marks(path, block))
        for path in DOCUMENTS
        for number, block in enumerate(PYTHON_BLOCK.findall(path.read_text()))
    ]


def run(arguments, **options):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, **options
    )


@pytest.mark.parametrize("snippet", snippets())
def test_every_python_snippet_of_the_documents_runs(snippet, tmp_path):
    """Each as a program of its own, in this process: importing takes longer than most of them."""
    if NEEDS_TORCH in snippet:
        pytest.importorskip("torch", exc_type=ImportError)
    path = tmp_path / "snippet.py"
    path.write_text(snippet, encoding="utf-8")
    runpy.run_path(str(path), run_name="__main__")


NEEDS_LIBRARIES = {"libraries_lab.py": ("torch", "equinox", "flax")}
EXAMPLES = [
    pytest.param(path, id=path.name, marks=[pytest.mark.peer] * (path.name in NEEDS_LIBRARIES))
    for path in sorted((ROOT / "examples").glob("*.py"))
]


@pytest.mark.parametrize("path", EXAMPLES)
def test_every_example_runs(path, tmp_path):
    for library in NEEDS_LIBRARIES.get(path.name, ()):
        pytest.importorskip(library, exc_type=ImportError)
    done = run([str(path)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


TABLES = {
    name: document
    for name, paper in papers().items()
    for document in re.findall(r"docs/\w+\.md", importlib.import_module(paper.package).__doc__)
}


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_results_are_those_of_the_committed_summaries(name):
    """A paper's results.json is what `flattest summary --json` printed; its folder's docstring says
    which document has the tables, which may put its own text between them. Where docs/tables.py
    writes them, in the order of the document, tests of the study hold them; no row is left out.
    """
    summaries = read_summaries(papers()[name].folder / RESULTS)
    document = (ROOT / TABLES[name]).read_text()
    if "<!-- results: " in document:
        panels = [summary.experiment.partition("/")[2] for summary in summaries]
        assert [panel for panel in panels if f"| {panel} |" not in document] == []
    else:
        assert all(table in document for table in markdown(summaries).split("\n\n"))


def test_the_speed_on_real_networks_is_that_of_the_kept_run():
    """`flattest bench networks --keep`."""
    kept = (ROOT / "benchmarks/results/networks.txt").read_text()
    seconds = re.findall(r"(?:flattest|BackPACK DiagGGNExact) +([\d.]+) s +([\d.]+) ×", kept)
    (small, _), (small_peer, small_ratio), (large, _), (large_peer, large_ratio) = seconds
    page = (ROOT / "docs/measure.md").read_text()
    assert f"exact | {small} | {large} |" in page
    peer = f"{small_peer} ({small_ratio} ×) | {large_peer} ({large_ratio} ×)"
    assert f"BackPACK 1.7 DiagGGNExact, exact | {peer} |" in page
