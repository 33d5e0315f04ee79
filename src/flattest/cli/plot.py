"""Draw the figures of experiments from what the store has; nothing is trained.

Examples:

    flattest plot mulayoff2021/sweep                 of the quick runs, into out/figures
    flattest plot 'mulayoff2021/*' --full --out docs/figures
"""

from pathlib import Path
from typing import Annotated

import tyro

from flattest.cli._options import (
    DEFAULT_STORE,
    Full,
    Patterns,
    Quick,
    Seeds,
    StoreFolder,
    console,
    variant_name,
)
from flattest.errors import FlattestError
from flattest.experiments.registry import figures, matching
from flattest.runs.results import how_to_run, results
from flattest.runs.store import Store


def command(
    patterns: Patterns,
    quick: Quick = False,
    full: Full = False,
    seeds: Seeds = None,
    folder: StoreFolder = DEFAULT_STORE,
    out: Annotated[
        Path, tyro.conf.arg(metavar="DIR", help="Where the figures go, a folder per paper.")
    ] = Path("out/figures"),
) -> int:
    from flattest.report.figure import save

    if not patterns:
        raise FlattestError("Say what to draw: a name, or a pattern such as 'mulayoff2021/*'.")
    variant = variant_name(quick, full)
    store = Store.open(folder)
    paths: list[Path] = []
    for experiment in matching(*patterns):
        found, drawings = results(experiment, variant, store, seeds), figures(experiment.name)
        if drawings and not found:
            raise FlattestError(
                f"The store has no finished {variant} run of {experiment.name}; "
                f"{how_to_run(experiment.name, variant)} makes them."
            )
        for name, draw in drawings.items():
            paths += save(draw(found), out / experiment.paper, name)
    if not paths:
        raise FlattestError(
            f"There is no figure of {', '.join(patterns)}; `flattest report` shows its curves."
        )
    console().print("\n".join(map(str, paths)), markup=False)
    return 0
