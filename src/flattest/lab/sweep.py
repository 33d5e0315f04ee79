"""Phase diagrams: where does the algorithm generalize, over a grid of two settings of a setup?"""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from flattest.errors import FlattestError, require_known
from flattest.experiments.expectations import tail
from flattest.experiments.experiment import Experiment, Variant
from flattest.lab.setup import Setup
from flattest.problem.data import Examples, OwnLaw
from flattest.problem.models import OwnModel
from flattest.runs.questions import answered, ask
from flattest.runs.results import results
from flattest.runs.run import run_experiments
from flattest.runs.store import Store
from flattest.runs.user_file import Reference

replace = msgspec.structs.replace


def _every_phase(setup: Setup, **change) -> Setup:
    phases = tuple(_varied(phase, **change) for phase in setup.algorithm)
    return replace(setup, algorithm=phases)


def _varied(part: Any, **change) -> Any:
    """The part of a setup with a setting at another value; raises where it has no such setting."""
    law = part.law if isinstance(part, OwnLaw) else part
    fixed = isinstance(law, Examples)  # whose arrays are what they are
    for name in change:
        if fixed or name not in law.__struct_fields__:
            what = f"the model {part.name}" if isinstance(part, OwnModel) else type(law).__name__
            raise FlattestError(f"{name} cannot be varied: {what} has no {name} to set.")
    return replace(law, **change)


# What can be varied: how a setup looks with that setting at a value.
SETTINGS: dict[str, Callable[[Setup, float], Setup]] = {
    "n": lambda setup, value: replace(setup, n=round(value)),
    "d": lambda setup, value: replace(
        setup, distribution=_varied(setup.distribution, d=round(value))
    ),
    "width": lambda setup, value: replace(setup, model=_varied(setup.model, width=round(value))),
    "epochs": lambda setup, value: _every_phase(setup, epochs=round(value)),
    "lr": lambda setup, value: _every_phase(setup, lr=value),
    "rho": lambda setup, value: _every_phase(setup, rho=value),
}
WHOLE = {"n", "d", "width", "epochs"}


class Axis(msgspec.Struct, frozen=True):
    """One setting and the values it takes, in increasing order."""

    setting: str
    values: tuple[float, ...]


class Diagram(msgspec.Struct, frozen=True):
    """Mean test error over seeds, `error[i][j]` at y.values[i] and x.values[j]; NaN if not run.

    `missing` runs, over all cells, have no result: the means are those of the others.
    """

    setup: str
    x: Axis
    y: Axis
    seeds: int
    error: tuple[tuple[float, ...], ...]
    missing: int = 0

    def __repr__(self) -> str:
        """Rows from the top of the diagram down."""
        head = f"{self.setup}: test error over {self.x.setting} (across) and {self.y.setting} (up)"
        rows = [
            f"{y:>10.4g} " + " ".join(f"{error:8.3f}" for error in row)
            for y, row in zip(self.y.values, self.error, strict=True)
        ]
        foot = " " * 11 + " ".join(f"{x:8.4g}" for x in self.x.values)
        return "\n".join([head, *reversed(rows), foot])

    def json(self) -> str:
        return msgspec.json.encode(self).decode()


def axis(text: str) -> Axis:
    """An axis from "n=50:800" (six values, about evenly spaced in the logarithm and round), from
    "n=50:800:9" or "rho=0.05,0.1,0.2"."""
    setting, _, values = text.partition("=")
    require_known("setting to vary", setting, SETTINGS)
    try:
        numbers = [float(v) for v in values.replace(":", ",").split(",")]
    except ValueError:
        numbers = []
    if not all(map(math.isfinite, numbers)):
        numbers = []
    if ":" in values and len(numbers) in (2, 3) and 0 < numbers[0] < numbers[1]:
        count = round(numbers[2]) if len(numbers) == 3 else 6
        numbers = _round_grid(numbers[0], numbers[1], max(2, count))
    elif ":" in values or not numbers or min(numbers) <= 0:
        raise FlattestError(f"{text!r} is not an axis; say n=50:800, n=50:800:9 or n=50,100,200.")
    if setting in WHOLE:
        numbers = [float(round(v)) for v in numbers]
    return Axis(setting, tuple(sorted(set(numbers))))


def _round_grid(low: float, high: float, count: int) -> list[float]:
    """Evenly spaced in the logarithm; between the ends two digits, or as many as keep them apart
    from each other: round numbers are what one reads off an axis."""
    exact = np.geomspace(low, high, count).tolist()
    for digits in range(2, 17):
        inner = [float(f"{value:.{digits}g}") for value in exact[1:-1]]
        found = [low, *inner, high]
        if all(a < b for a, b in itertools.pairwise(found)):
            return found
    return exact


def cells(setup: Setup, x: Axis, y: Axis, seeds: int) -> dict[tuple[int, int], Experiment]:
    """The experiment of each cell of the grid, by row and column."""
    if x.setting == y.setting:
        raise FlattestError(f"A diagram varies two settings; {x.setting} is given twice.")
    found = {}
    for (i, b), (j, a) in itertools.product(enumerate(y.values), enumerate(x.values)):
        at = SETTINGS[y.setting](SETTINGS[x.setting](setup, a), b)
        task = Variant(at.training(at.algorithm), seeds)
        found[i, j] = Experiment(
            name=f"sweep/{setup.name}-{x.setting}={a:g}-{y.setting}={b:g}",
            figure="",
            statement="One cell of a phase diagram.",
            quick=task,
            full=task,
        )
    return found


def sweep(
    setup: Setup,
    x: Axis | str,
    y: Axis | str,
    seeds: int = 3,
    store: Store | str | Path = "out/store",
    workers: int | None = 1,
    scheduler: str | None = None,
    preload: Reference | None = None,
) -> Diagram:
    """Run what is not done of the grid, and read the diagram from the store, a folder.

    An axis may be given as "n=50:800", "n=50:800:9" or "rho=0.05,0.1,0.2". As for `judge`, more
    `workers` than one know of a user's own code only what the function `preload` makes.
    """
    x, y = (axis(a) if isinstance(a, str) else a for a in (x, y))
    grid = cells(setup, x, y, seeds)
    next(iter(grid.values())).full.task.check()
    store = store if isinstance(store, Store) else Store.create(store)
    question = ask(
        store,
        "diagram",
        f"sweep/{setup.name}-{x.setting}-{y.setting}",
        {f"{i},{j}": e for (i, j), e in grid.items()},
        about={"setup": setup, "x": x, "y": y, "seeds": seeds},
    )
    assessed = run_experiments(
        grid.values(), "full", store, None, workers, scheduler, preload=preload
    )
    error = tuple(
        tuple(_error(grid[i, j], store) for j in range(len(x.values))) for i in range(len(y.values))
    )
    found = Diagram(setup.name, x, y, seeds, error, sum(found.missing for found in assessed))
    answered(store, question, found)
    return found


def _error(e: Experiment, store: Store) -> float:
    """The mean over seeds; a run that diverged guesses."""
    found = results(e, "full", store)
    errors = [0.5 if r.status == "diverged" else tail(r["test_error"]) for r in found]
    return float(np.mean(errors)) if errors else math.nan


def read_diagram(kept: Any) -> Diagram:
    """A diagram from the plain data that a store keeps; JSON has no NaN."""
    error = tuple(tuple(math.nan if e is None else e for e in row) for row in kept["error"])
    return replace(msgspec.convert(kept | {"error": ()}, Diagram), error=error)
