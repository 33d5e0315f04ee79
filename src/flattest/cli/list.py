"""List the experiments: one for each figure panel or table, with what the paper states.

Examples:

    flattest list                 every experiment
    flattest list 'wen2023/fig4*' those that match
    flattest list fig4b --json    the whole spec; edited in a file, `flattest run` takes it
"""

from rich.markup import escape
from rich.table import Table

from flattest.cli._options import Json, Patterns, console, listing, name_column, print_json
from flattest.experiments.experiment import Experiment
from flattest.experiments.registry import matching


def command(patterns: Patterns = ("*/*",), as_json: Json = False) -> int:
    chosen = matching(*patterns)
    if as_json:
        print_json(chosen[0] if len(chosen) == 1 else chosen)
    else:
        console().print(table(chosen))
    return 0


def table(chosen: list[Experiment]) -> Table:
    names = name_column("experiment", (e.name for e in chosen))
    grid = listing(names, "figure", "statement", "seeds", "expectations")
    for e in chosen:
        seeds = f"{e.quick.seeds} / {e.full.seeds}"
        expected = f"{len(e.quick.expectations)} / {len(e.full.expectations)}"
        grid.add_row(*map(escape, (e.name, e.figure, e.statement, seeds, expected)))
    grid.caption = "seeds and expectations: quick / full" if chosen else "no experiments"
    return grid
