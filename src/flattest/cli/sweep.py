"""Draw where the algorithm generalizes, over a grid of two settings of your setup.

Settings that can be varied: n, d, width, epochs, lr, rho. A range is cut evenly in the logarithm.
The runs are kept: the same command goes on where it stopped, and a finer grid reuses its points.
The exit code is 0 when every run of the grid has a result, else 1.

Examples:

    flattest example                     writes lab.py, with setups to change
    flattest sweep lab.py:setup --over n=50:800 --over d=10:60 --seeds 3
    flattest sweep lab.py:setup --over n=50:800:9 --over rho=0.05,0.1,0.2
    flattest sweep lab.py:setup lab.py:d50 --over n=30:300 --over d=10:60   a diagram each
"""

from pathlib import Path
from typing import Annotated

import tyro
from rich.markup import escape

from flattest.cli._options import (
    DEFAULT_STORE,
    Json,
    Scheduler,
    StoreFolder,
    Workers,
    look_at,
    output,
)
from flattest.cli._user_file import parse
from flattest.cli.judge import read_setup
from flattest.errors import FlattestError
from flattest.runs.store import Store


def command(
    references: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="FILE.py:FUNCTION", help="Setups, one diagram each."),
    ],
    over: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        tyro.conf.arg(metavar="SETTING=RANGE", help="Give it twice: across, then up."),
    ] = (),
    seeds: Annotated[int, tyro.conf.arg(metavar="N", help="Runs of each point of the grid.")] = 3,
    workers: Workers = None,
    scheduler: Scheduler = None,
    folder: StoreFolder = DEFAULT_STORE,
    out: Annotated[Path, tyro.conf.arg(metavar="DIR", help="Where the diagrams go.")] = Path(
        "out/figures/sweep"
    ),
    as_json: Json = False,
) -> int:
    from flattest.lab import sweep
    from flattest.lab.diagram import phase_diagrams
    from flattest.report.figure import save

    if len(over) != 2 or not references:
        raise FlattestError(
            "Say a setup and two settings: FILE.py:FUNCTION --over n=50:800 --over d=10:60."
        )
    x, y = map(sweep.axis, over)
    store = Store.create(folder)
    diagrams = [
        sweep.sweep(read_setup(r), x, y, seeds, store, workers, scheduler, parse(r))
        for r in references
    ]
    name = "-".join(dict.fromkeys(d.setup for d in diagrams))
    paths = save(phase_diagrams(diagrams), out, f"{name}-{x.setting}-{y.setting}")
    missing = sum(diagram.missing for diagram in diagrams)
    lines = [escape(str(path)) for path in paths]
    if missing:
        lines.append(f"{missing} runs have no result; `flattest status 'sweep/*'` says why.")
    output(as_json, diagrams, *lines, then=look_at(folder))
    return 1 if missing else 0
