"""List the experiments: one for each figure panel or table, with what the paper states.

Examples:

    flattest list                   every experiment
    flattest list 'wen2023/fig4*'   those that match
    flattest list fig4b --json      the whole spec; edited in a file, `flattest run` takes it
"""

from rich.markup import escape
from rich.table import Table

from flattest.cli._options import Json, Patterns, listing, name_column, output
from flattest.experiments.experiment import Experiment
from flattest.experiments.registry import matching


def command(patterns: Patterns = ("*/*",), as_json: Json = False) -> None:
    chosen = matching(*patterns)
    then = f"`flattest run {chosen[0].name}` runs it." if chosen else ""
    output(as_json, chosen[0] if len(chosen) == 1 else chosen, table(chosen), then=then)


def table(chosen: list[Experiment]) -> Table:
    names = name_column("experiment", (e.name for e in chosen))
    rows = (
        (
            *map(escape, (e.name, e.figure, e.statement)),
            f"{e.quick.seeds} / {e.full.seeds}",
            f"{len(e.quick.expectations)} / {len(e.full.expectations)}",
        )
        for e in chosen
    )
    caption = "seeds and expectations: quick / full" if chosen else "no experiments"
    return listing((names, "figure", "statement", "seeds", "expectations"), rows, caption)
