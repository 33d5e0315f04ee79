"""The map of the code is complete, and names what exists."""

import ast
import re

import pytest

from support.places import ROOT

SOURCE = ROOT / "src" / "flattest"
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
NAMED = r"`((?:src/flattest/|tests/|docs/)?[a-z_0-9]+(?:/[a-z_0-9]+)*\.(?:pyi?|json|md))`"


def test_every_package_and_module_at_the_top_has_its_place_on_the_map():
    first = re.findall(r"^\| ((?:`\w+` ?)+)\|", MAP, re.MULTILINE)
    named = {name for cell in first for name in re.findall(r"\w+", cell)}
    found = {p.stem for p in SOURCE.iterdir() if p.is_dir() or p.suffix == ".py"}
    assert named == found - {"__init__", "__pycache__"}


def test_every_file_that_the_map_and_the_guide_name_exists():
    named = re.findall(NAMED, MAP + GUIDE)
    assert len(named) > 30
    # A paper's folder has its own files of these names.
    inside = {"__init__.py", "experiments.py", "figures.py", "claims.py", "constructions.py"}
    inside |= {"page.py", "picture.py", "results.json", "attacks.json"}
    missing = [n for n in named if not ((ROOT / n).exists() or (SOURCE / n).exists())]
    assert set(missing) <= inside


def test_the_readme_and_the_guide_link_the_map():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "docs/architecture.md" in readme
    assert "docs/architecture.md" in GUIDE


def test_packages_hold_a_docstring_and_nothing_else():
    found = {p.parent.name for p in SOURCE.rglob("__init__.py") if len(statements(p)) > 1}
    assert found == {"flattest", "papers"}


def statements(path):
    return ast.parse(path.read_text(encoding="utf-8")).body


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    # The site has pages that are made when it is built (docs/site/hooks.py).
    made = re.findall(r'made\["(\S+)"\]', (ROOT / "docs" / "site" / "hooks.py").read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert set(missing) <= set(made)
