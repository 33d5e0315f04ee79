"""Table 1 of wen2023, computed: do all flattest minimizers generalize, and does 1-SAM?

Trains the four architectures with 1-SAM over seeds, looks for flattest networks that do not
generalize, prints the table with the evidence behind every cell, and writes the curves to
out/table1.html. A third column says whether the flow of the sharpness generalizes, from committed
results of the study question2; that all flattest minimizers without bias generalize is proven where
committed results of the study question1 prove it for a draw. Finished runs are kept, so the same
command again only prints. In the third row the paper prints ✓ where a network is built here that
refutes it; the exit code is 1 where a cell is not what is expected.

Examples:

    flattest table1                 under three minutes on two cores
    flattest table1 --full          the paper's own width and epochs
    flattest table1 --json          the answers for a program
"""

from pathlib import Path

from rich.markup import escape
from rich.table import Table

from flattest.cli._options import (
    DEFAULT_STORE,
    Full,
    Json,
    Page,
    Scheduler,
    StoreFolder,
    Workers,
    mark,
    output,
    variant_name,
)
from flattest.cli.judge import cell
from flattest.lab.scenario import Answer
from flattest.report.document import write_page
from flattest.runs.run import run_experiments
from flattest.runs.store import Store
from flattest.studies.table1.experiments import ARCHITECTURES, Architecture, answered, roles


def command(
    full: Full = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    folder: StoreFolder = DEFAULT_STORE,
    page: Page = Path("out/table1.html"),
    as_json: Json = False,
) -> int:
    variant = variant_name(False, full)
    store = Store.create(folder)
    rows = list(ARCHITECTURES.values())
    every = [e for row in rows for e in roles(row).values()]
    run_experiments(every, variant, store, None, workers, scheduler)
    answers = [answered(row, variant, store) for row in rows]
    write_page(store, page)
    output(
        as_json,
        answers,
        table(answers),
        "A certified lower bound is that of the problem in its cell: the searches of the first"
        " column are on smaller ones.",
        f"The page with the curves: {page.absolute().as_uri()}",
    )
    return 0 if all(map(as_expected, rows, answers)) else 1


def as_expected(row: Architecture, found: Answer) -> bool:
    """Whether both cells are those that are expected, which in one row are not the paper's."""
    return _cells(found) == row.expected


def _cells(found: Answer) -> tuple[bool | None, bool | None]:
    return found.flattest_generalize.holds, found.algorithm_generalizes.holds


def _beside_the_paper(row: Architecture, found: Answer) -> str:
    """The scenario, and what the paper prints where that is something else."""
    shown = [escape(found.scenario)]
    if _cells(found) != row.paper:
        shown.append(f"[red]the paper prints[/] {' '.join(map(mark, row.paper))}")
    if as_expected(row, found):
        shown += [f"[dim]{escape(row.reason)}[/]"] if row.reason else []
    else:
        shown.append("[red]not what was expected[/]")
    return "\n".join(shown)


def table(answers: list[Answer]) -> Table:
    columns = (
        *("Architecture", "All flattest minimizers generalize", "1-SAM generalizes"),
        *("The flow generalizes", ""),
    )
    shown = Table(*columns, title="Table 1 of wen2023, computed", show_lines=True)
    for row, found in zip(ARCHITECTURES.values(), answers, strict=True):
        shown.add_row(
            f"{row.title}\n[dim]{row.theorem}[/]",
            cell(found.flattest_generalize),
            cell(found.algorithm_generalizes),
            cell(found.flow_generalizes) if found.flow_generalizes else "",
            _beside_the_paper(row, found),
        )
    return shown
