"""Writes the tables of committed results into the pages of the studies, and draws the pictures of
studies and papers that need no more than these results: `python docs/tables.py`.

With a file of new summaries of one study, as `flattest summary 'question2/*' --full --json` prints
them, its rows go into that study's results.json first: each takes the place of the experiment's row
there, and names the commit that made its runs. Rows of fewer seeds than the committed ones are
refused.

In a page a comment stands over each table: `<!-- results: ways-* scales -->` names experiments,
whose rows follow in the order of results.json, folded away: all numbers, for who looks for one;
`<!-- main table -->` has that table of `TABLES` under it, in the open.
"""

import importlib
import json
import re
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from flattest.experiments.registry import experiments, papers
from flattest.lab.summary import Summary, markdown, read_summaries
from flattest.ledger.figures import RESULTS
from flattest.papers.vardhan2026.picture import PICTURES
from flattest.report.ends import ends
from flattest.report.figure import save_all
from flattest.studies.question1.tables import boundary, outcomes, phases, thresholds
from flattest.studies.question2.table import longer_table, main_table

STUDIES = ("question1", "question2")
OF_PAPERS = {"wen2023": {"ends": ends}, "vardhan2026": PICTURES}
FIGURES = Path(__file__).with_name("figures")
TABLES = {
    "main table": main_table,
    "longer table": longer_table,
    "outcomes": outcomes,
    "phases": phases,
    "thresholds": thresholds,
    "boundary": boundary,
}
MARK = re.compile(
    rf"(<!-- (results: (?P<names>.+)|(?P<table>{'|'.join(TABLES)})) -->\n)"
    r"(\n|\|.*\n|Not run\.\n|<details(?s:.*?)</details>\n)*"
)
# GitHub and the site (by md_in_html) both read Markdown in it.
FOLDED = """<details markdown="1">
<summary>All numbers of {names}: {count}</summary>

{table}
</details>
"""


def page(study: str) -> Path:
    return Path(__file__).with_name(f"{study}.md")


def with_tables(text: str, summaries: Sequence[Summary]) -> str:
    """The page with the tables of these results under its comments."""

    def table(found: re.Match[str]) -> str:
        if found["table"] is not None:
            return f"{found[1]}\n{TABLES[found['table']](summaries)}\n\n"
        names = found["names"].split()
        rows = [s for s in summaries if any(fnmatch(_panel(s), name) for name in names)]
        return f"{found[1]}\n{_folded(names, rows)}\n"

    return MARK.sub(table, text)


def _folded(names: Sequence[str], rows: Sequence[Summary]) -> str:
    if not rows:
        return "Not run.\n"
    count = f"{len(rows)} experiment{'' if len(rows) == 1 else 's'}"
    listed = ", ".join(name.replace("*", "…") for name in names)
    return FOLDED.format(names=listed, count=count, table=markdown(rows))


def _panel(summary: Summary) -> str:
    return summary.experiment.partition("/")[2]


def renewed(committed: Sequence[dict], new: Sequence[dict], order: Sequence[str]) -> list[dict]:
    """The rows with the new ones in their places, in the order of the experiments."""
    rows = {row["experiment"]: row for row in committed}
    for row in new:
        before = rows.get(row["experiment"])
        if before is not None and before["seeds"] > row["seeds"]:
            raise SystemExit(f"{row['experiment']}: {before['seeds']} seeds are committed.")
        rows[row["experiment"]] = row
    return [rows[name] for name in order if name in rows]


def _renew(new: Path) -> None:
    rows = json.loads(new.read_text(encoding="utf-8"))
    path = papers()[rows[0]["experiment"].partition("/")[0]].folder / RESULTS
    committed = json.loads(path.read_text(encoding="utf-8"))
    rows = renewed(committed, rows, list(experiments()))
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        _renew(Path(argument))
    for study in STUDIES:
        summaries, path = read_summaries(papers()[study].folder / RESULTS), page(study)
        path.write_text(with_tables(path.read_text(encoding="utf-8"), summaries), encoding="utf-8")
        pictures = importlib.import_module(f"flattest.studies.{study}.picture").PICTURES
        save_all(pictures, summaries, FIGURES / study)
    for paper, pictures in OF_PAPERS.items():
        save_all(pictures, read_summaries(papers()[paper].folder / RESULTS), FIGURES / paper)
