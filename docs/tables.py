"""Writes the tables of question 2's committed results into its page: `python docs/tables.py`.

In the page a comment stands over each table: `<!-- results: ways-* scales -->` names experiments,
whose rows follow in the order of results.json; `<!-- main table -->` has the main table under it.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from flattest.experiments.registry import papers
from flattest.lab.summary import Summary, markdown, read_summaries
from flattest.ledger.figures import RESULTS
from flattest.studies.question2.table import main_table

PAGE = Path(__file__).with_name("question2.md")
MARK = re.compile(r"(<!-- (results: (?P<names>.+)|main table) -->\n)(\n|\|.*\n)*")


def with_tables(page: str, summaries: Sequence[Summary]) -> str:
    """The page with the tables of these results under its comments."""

    def table(found: re.Match[str]) -> str:
        if found["names"] is None:
            return f"{found[1]}\n{main_table(summaries)}\n\n"
        names = found["names"].split()
        rows = [s for s in summaries if any(fnmatch(_panel(s), name) for name in names)]
        return f"{found[1]}\n{markdown(rows) if rows else 'Not run.'}\n"

    return MARK.sub(table, page)


def _panel(summary: Summary) -> str:
    return summary.experiment.partition("/")[2]


if __name__ == "__main__":
    summaries = read_summaries(papers()["question2"].folder / RESULTS)
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), summaries), encoding="utf-8")
