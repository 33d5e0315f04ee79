"""A paper is a folder: one that a user adds is found by every command, and by every process."""

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

CHROMIUM = shutil.which("chromium")
FILES = {
    "__init__.py": '"""Doe: A Toy Paper, 2030"""\n',
    "experiments.py": """
from flattest.experiments.expectations import AtMost
from flattest.experiments.experiment import Computed, Experiment, Variant


class Halving(Computed, frozen=True, tag="toy2030/halving"):
    steps: int = 5

    def compute(self, seed):
        return {"value": [2.0**-k for k in range(self.steps + 1)]}


SMALL = AtMost(series="value", value=0.1)
EXPERIMENTS = (
    Experiment(
        name="toy2030/fig1",
        figure="Figure 1",
        statement="Halving makes small.",
        quick=Variant(Halving(steps=4), 2, (SMALL,)),
        full=Variant(Halving(), 3, (SMALL,)),
    ),
)
""",
    "figures.py": """
from matplotlib.figure import Figure


def halving(runs):
    drawn = Figure()
    drawn.subplots().plot(runs[0]["value"])
    return drawn


FIGURES = {"toy2030/fig1": {"fig1": halving}}
""",
    "page.py": """
from flattest.report.views import rounded


def halving(found, points, digits):
    return {"halves": rounded(found["value"][1:])}


VIEWS = {"toy2030/halving": halving}
""",
    "page.js": """
// A name that another paper has too.
function circle(runs) {
  return make("p", { id: "toy" }, `Halves: ${runs[0].series.halves.join(", ")}`);
}

PANELS["toy2030/halving"] = (id, runs) => circle(runs);
""",
    "claims.py": """
from flattest.evidence import equal
from flattest.ledger.claim import claim, figure
from flattest.papers.toy2030.experiments import SMALL


@claim("toy2030/lemma-1", "2 · ½ = 1.", source="Lemma 1", evidence="identity")
def lemma_1(factor=2.0):
    return equal(factor * 0.5, 1.0, 1e-9)


@figure(
    "toy2030/figure-1", "It gets small.", source="Figure 1", experiments=("toy2030/fig1",)
)
def figure_1(found):
    return found.verdict(SMALL)
""",
}


HALVES = [0.5, 0.25, 0.125, 0.0625]

# Commands one after the other in one process, which takes seconds to start; what each of them said.
DRIVER = """
import contextlib, io, json, sys
from flattest.cli._dispatch import main

if __name__ == "__main__":
    said = []
    for arguments in json.loads(sys.argv[1]):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = main(arguments)
        said.append((code, out.getvalue()))
        if arguments[-2:] == ["--full", "--json"]:
            open("papers/toy2030/results.json", "w").write(out.getvalue())
    json.dump(said, sys.stdout)
"""


@pytest.fixture
def toy(tmp_path):
    """Runs commands where a folder of papers of one's own has the toy paper."""
    paper = tmp_path / "papers" / "toy2030"
    paper.mkdir(parents=True)
    for name, text in FILES.items():
        (paper / name).write_text(text)
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    paths = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"FLATTEST_PAPERS": str(paper.parent), "PYTHONPATH": paths}

    def run(*commands):
        done = subprocess.run(
            [sys.executable, str(driver), json.dumps([command.split() for command in commands])],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_every_command_finds_it(toy, tmp_path):
    listed, verified, run, again, plotted, summarized, reported = toy(
        "list toy2030/*",
        "verify toy2030 --workers 1",
        "run toy2030/* --workers 1",
        "verify toy2030 --workers 1 --json",
        "plot toy2030/*",
        "summary toy2030/*",
        "report --page page.html",
    )
    assert "toy2030/fig1" in listed[1]
    assert verified[0] == 1
    assert "not run" in verified[1]
    assert "`flattest run toy2030/fig1 --full`" in verified[1]
    assert [code for code, _ in (run, again, plotted, summarized, reported)] == [0] * 5
    rows = {row["id"]: row for row in json.loads(again[1])}
    assert rows["toy2030/lemma-1"]["status"] == "holds"
    assert rows["toy2030/figure-1"]["basis"] == "figure, 2 seeds"
    assert "toy2030/fig1 quick, 2 seeds, from the store" in rows["toy2030/figure-1"]["note"]
    assert (tmp_path / "out" / "figures" / "toy2030" / "fig1.png").is_file()
    assert "Halving makes small." in summarized[1]
    text = re.search(r'id="data">([^<]*)</script>', (tmp_path / "page.html").read_text())[1]
    page = json.loads(gzip.decompress(base64.b64decode(text)))
    assert [panel["name"] for panel in page["outline"]["panels"]] == ["toy2030/fig1"]
    assert [run["series"] for run in page["runs"].values()] == [{"halves": HALVES}] * 2
    shown = {c["id"]: c["checked"] for c in page["claims"]}
    assert shown["toy2030/figure-1"]["basis"] == "figure, 2 seeds"


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_draws_its_picture(toy, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    toy("run toy2030/* --workers 1", "run fig3 --workers 1", "report --page page.html")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto((tmp_path / "page.html").as_uri())
        assert page.locator("#toy").inner_text() == f"Halves: {', '.join(map(str, HALVES))}"
        assert page.locator(".circles svg circle").count() > 0
        browser.close()


@pytest.mark.slow
def test_other_processes_find_it_and_its_committed_results_count(toy):
    run, summarized, verified = toy(
        "run toy2030/* --full --workers 2",
        "summary toy2030/* --full --json",
        "verify toy2030 --workers 2 --store empty --json",
    )
    assert [code for code, _ in (run, summarized, verified)] == [0] * 3
    (figure, _) = json.loads(verified[1])
    assert figure["basis"] == "figure, 3 seeds"
    assert "full, 3 seeds, from papers/toy2030/results.json" in figure["note"]
