"""Judge a network, a distribution and an algorithm of your own: which scenario is it?

A function in your file returns a `ft.Setup`; it is trained over seeds, flattest networks that do
not generalize are looked for, and the answer is Scenario I, II, III or undetermined, with the
evidence. Finished runs are kept: more seeds only add to them. The exit code is 1 where it is
undetermined.

Examples:

    flattest example                     writes lab.py, with setups to change
    flattest judge lab.py:label_noise
    flattest judge lab.py:setup --json
"""

from typing import Annotated

import tyro
from rich.markup import escape
from rich.table import Table

from flattest.cli._options import (
    DEFAULT_STORE,
    Json,
    Scheduler,
    StoreFolder,
    Workers,
    graded_mark,
    look_at,
    output,
)
from flattest.cli._user_file import load, parse, run
from flattest.errors import FlattestError
from flattest.lab.scenario import Answer, Finding, judge
from flattest.lab.setup import Setup
from flattest.runs.store import Store


def command(
    reference: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.py:FUNCTION", help="Your setup.")
    ],
    workers: Workers = None,
    scheduler: Scheduler = None,
    folder: StoreFolder = DEFAULT_STORE,
    as_json: Json = False,
) -> int:
    found = judge(read_setup(reference), Store.create(folder), workers, scheduler, parse(reference))
    output(as_json, found, table(found), then=look_at(folder))
    return 1 if found.scenario == "undetermined" else 0


def read_setup(reference: str) -> Setup:
    setup = run(load(reference), reference)
    if not isinstance(setup, Setup):
        raise FlattestError(f"{reference} returned a {type(setup).__name__}, not a ft.Setup.")
    return setup


def table(found: Answer) -> Table:
    shown = Table(
        title=escape(f"{found.setup}: {found.scenario}"), show_header=False, show_lines=True
    )
    shown.add_row("All flattest minimizers generalize", cell(found.flattest_generalize))
    shown.add_row("The algorithm generalizes", cell(found.algorithm_generalizes))
    if found.baseline_generalizes is not None:
        shown.add_row("The baseline generalizes", cell(found.baseline_generalizes))
    return shown


def cell(finding: Finding) -> str:
    return f"{graded_mark(finding.grade)}: {escape(finding.sentence)}"
