"""Show one run: what was asked, how it went, its series and where it was made.

A run is named by the beginning of its key, as `flattest status` prints it, or as
EXPERIMENT@SEED (quick) or EXPERIMENT@SEED --full.

Examples:

    flattest run fig3 && flattest show fig3@0
    flattest show 3f2a9c             a key that `flattest status` prints
    flattest show fig4b@0 --full
    flattest show fig4b@0 --json     with all values of the series
"""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import numpy as np
import tyro
from rich.markup import escape
from rich.table import Table

from flattest.cli._options import (
    DEFAULT_STORE,
    Full,
    Json,
    StoreFolder,
    console,
    duration,
    grid,
    print_json,
    variant_name,
)
from flattest.errors import FlattestError
from flattest.runs.folder import StoredRun
from flattest.runs.questions import asked_experiment
from flattest.runs.store import Store


def command(
    run: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN", help="The beginning of a key, or EXPERIMENT@SEED."),
    ],
    full: Full = False,
    folder: StoreFolder = DEFAULT_STORE,
    as_json: Json = False,
) -> None:
    store = Store.open(folder)
    found = (named(store, run, full) if "@" in run else store.find(run)).examined()
    if as_json:
        print_json(everything(found))
    else:
        show(found)


def named(store: Store, name: str, full: bool) -> StoredRun:
    """The run EXPERIMENT@SEED, of an experiment of the papers or of a setup of one's own."""
    panel, _, seed = name.partition("@")
    if not seed.isdecimal():
        raise FlattestError(f"A run is named EXPERIMENT@SEED with a number as seed, not {name!r}.")
    try:
        e = asked_experiment(store, panel)
    except FlattestError:
        labels = (panel,) if full else (panel, f"{panel}:quick")
        own = [run for run in store.runs() if run.label in labels and run.seed == int(seed)]
        if not own:
            raise
        if len(own) > 1:
            keys = ", ".join(run.key for run in own)
            raise FlattestError(
                f"{len(own)} runs are called {name}; name one by its key: {keys}."
            ) from None
        return own[0]
    found = store.run_of(e.variant(variant_name(False, full)).task, int(seed))
    if found is None:
        command = f"flattest run {panel}{' --full' if full else ''} --seeds {int(seed) + 1}"
        raise FlattestError(f"{name} has not been run; `{command}` does it.")
    return found


def everything(run: StoredRun) -> dict:
    readable = run.status != "broken"
    return {
        "run": run,
        "task": run.task() if readable else None,
        "provenance": run.provenance() if readable and run.started else None,
        "stretches": run.stretches() if readable and run.started else (),
        "notes": run.notes() if readable and run.started else {},
        "series": run.series() if readable else {},
        "checkpoints": run.checkpoints(),
    }


def show(run: StoredRun) -> None:
    screen = console()
    screen.print(f"[bold]{escape(run.label)}[/], seed {run.seed}, run {run.key}: {run.status}")
    if run.sentence:
        screen.print(run.sentence, markup=False)
    if run.status == "broken":
        return
    screen.print(f"{duration(run.seconds)}, step {run.step}, in {run.folder}", markup=False)
    screen.print_json(data=run.task())
    if run.started:
        made: dict[str, Any] = {"notes": run.notes(), "provenance": run.provenance()}
        made |= {"earlier stretches": before} if (before := run.stretches()) else {}
        screen.print_json(data=msgspec.to_builtins(made))
    screen.print(summary(run))
    epochs = ", ".join(str(checkpoint.epoch) for checkpoint in run.checkpoints())
    screen.print(f"parameters kept at epochs: {epochs or 'none'}")


def summary(run: StoredRun) -> Table:
    columns = ("series", "shape", "first", "last", "least", "largest")
    return grid(columns, ((name, *cells(values)) for name, values in run.series().items()))


def cells(values: np.ndarray) -> Iterator[str]:
    yield "×".join(map(str, values.shape)) or "1"
    if not np.isnan(values).all():
        flat = values.ravel()
        numbers = (flat[0], flat[-1], np.nanmin(flat), np.nanmax(flat))
        yield from (f"{number:.6g}" for number in numbers)
