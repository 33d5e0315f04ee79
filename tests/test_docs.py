"""What the documents show, runs."""

import math
import os
import re
import subprocess
import sys

import msgspec
import pytest

from flattest.lab.summary import Summary, markdown
from support.places import ROOT

PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS_TORCH = "import torch\n"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def snippets():
    return [
        pytest.param(
            block,
            id=f"{path.name}-{number}",
            marks=[pytest.mark.peer] if NEEDS_TORCH in block else [],
        )
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
    if NEEDS_TORCH in snippet:
        pytest.importorskip("torch", exc_type=ImportError)
    done = run(["-c", snippet], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_every_example_runs(path, tmp_path):
    done = run([str(path)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "results").glob("*.json")), ids=lambda p: p.name
)
def test_the_tables_of_results_are_those_of_the_committed_summaries(path):
    """docs/results/wen2023.json is what `flattest summary --json` printed: docs/wen2023.md has it,
    and the sensitivity study's too. A document may put its own text between two tables."""
    found = msgspec.json.decode(path.read_bytes())
    for verdict in (v for summary in found for v in summary["verdicts"]):
        # JSON has no infinity, the value of a seed that cannot be judged.
        verdict["values"] = [math.inf if value is None else value for value in verdict["values"]]
    summaries = msgspec.convert(found, list[Summary])
    paper = {"sensitivity": "wen2023"}.get(path.stem, path.stem)
    document = (ROOT / "docs" / f"{paper}.md").read_text()
    assert all(table in document for table in markdown(summaries).split("\n\n"))
