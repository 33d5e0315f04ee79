"""The live atlas of what is committed: one HTML page, which opens from disk.

The curves are those of `make`, which keeps its runs in out/store; they are kept, thinned, by

    python docs/site/atlas.py out/store
"""

import sys
from pathlib import Path

import msgspec

from flattest.ledger.kept import written
from flattest.report.committed import committed
from flattest.report.document import PageData, render
from flattest.report.reader import Page, Scenario, gather
from flattest.runs.store import Store
from flattest.studies.table1.experiments import ARCHITECTURES
from flattest.studies.table1.flow import flow_generalizes

replace = msgspec.structs.replace
DOCS = Path(__file__).resolve().parents[1]
RUNS = DOCS / "atlas" / "table1.json"
NUMBERS_AT_MOST = 25_000  # in all: about 100 points of each curve

DOORWAY = """# Committed results, live

[Open the atlas of committed results](atlas/committed.html){{ .md-button .md-button--primary }}

It is the page that `flattest report` makes of a store, here of what is part of the repository: the
answers of Table 1 with the curves of the runs behind them, every committed result of the papers and
of our own questions, and the ledger of claims. It is one file and opens from disk.

- **{count} figures**, most at the papers' scale, folded by paper and study, to search: whether
  each came out as expected, and, opened, a dot for every seed beside the bound it is held against,
  median and range of each number, settings, machine and commit. Their curves are not committed,
  for their size: the figure says which command makes the runs again. A test and
  [the ledger](claims.md) read the same numbers.
- **Table 1**: quick runs, those of `make`, with their curves: sharpness against its certified lower
  bound, and the test error. Kept are those of {rows}; `make` has all four.
- **Claims**: [the ledger](claims.md) as it was last written, to search and filter.

A figure has an address: `atlas/committed.html#wen2023/fig4b-full` opens it.
Point at a dot or a curve for its value, drag to zoom; CSV and PNG save what is seen.
[How to read it](atlas.md) says more.
"""


def atlas() -> PageData:
    """All that is on the page."""
    runs = msgspec.json.decode(RUNS.read_bytes())
    for row in (row for front in runs["outline"]["fronts"] for row in front["scenarios"]):
        # On the flow there are committed results, which may be newer than the runs kept here.
        setup = ARCHITECTURES[row["answer"]["setup"]].quick
        row["answer"]["flow_generalizes"] = flow_generalizes(setup.name, setup.generalizes)
    return committed(runs, written((DOCS / "claims.md").read_text(encoding="utf-8")))


def doorway_and_page() -> tuple[str, str]:
    """The document that leads to the page, and the page."""
    page = atlas()
    count = len(page["outline"]["panels"])
    rows = [row["title"] for front in page["outline"]["fronts"] for row in front["scenarios"]]
    return DOORWAY.format(count=count, rows=" and ".join(rows)), render(page)


def keep(store: Store) -> None:
    """Keep the rows of Table 1 whose runs are all done, with these runs; no insides of networks,
    and no claims, which a document has."""
    page = gather(store, NUMBERS_AT_MOST)
    outline = page.outline
    fronts = [
        replace(f, scenarios=[r for r in f.scenarios if done(r, page)]) for f in outline.fronts
    ]
    behind = {name for f in fronts for row in f.scenarios for name in row.panels.values()}
    panels = [panel for panel in outline.panels if panel.name in behind]
    runs = {key: page.runs[key] for panel in panels for key in panel.runs}
    few = replace(
        outline,
        papers=[],
        fronts=fronts,
        panels=panels,
        others=[],
        tasks={run.task: outline.tasks[run.task] for run in runs.values()},
        marks={key: outline.marks[key] for key in runs},
    )
    RUNS.write_bytes(msgspec.json.encode(Page(few, runs, {}, [])) + b"\n")


def done(row: Scenario, page: Page) -> bool:
    """Whether every run behind a row has finished."""
    runs = {panel.name: panel.runs for panel in page.outline.panels}
    keys = [key for name in row.panels.values() for key in runs[name]]
    return all(page.runs[key].status == "finished" for key in keys)


if __name__ == "__main__":
    keep(Store.open(Path(sys.argv[1])))
