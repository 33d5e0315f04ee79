"""What all flattest two-layer networks say at given points: the least and the greatest output.

For each point the range over all interpolators of the training set, of any width, whose trace is
within --excess of the least; and over those without dead neurons, whose every neuron is active on
some training point. Where the points have labels, the shares of points on which all flattest
networks err, and on which some does.

The points are the array x of a file (with labels y, if it has them), or the first ones of the
distribution that the training set is drawn from.

Examples:

    flattest range --distribution xor --n 6 --d 3
    python -c "import numpy; numpy.savez('mine.npz', x=numpy.eye(3), y=[1, -1, 1])"
    flattest range --data mine.npz --points mine.npz --bias --excess 0.01 --json
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from flattest.cli._data import (
    Bias,
    DataFile,
    Dimension,
    DistributionName,
    LossName,
    Points,
    Seed,
    Slopes,
    training_set,
)
from flattest.cli._options import Json, grid, output
from flattest.errors import FlattestError
from flattest.files import read_arrays
from flattest.flatness.convex.range import flattest_range
from flattest.problem.data import Dataset
from flattest.problem.models import MLP

FIRST = 8


def command(
    data: DataFile = None,
    distribution: DistributionName = None,
    n: Points = None,
    d: Dimension = None,
    seed: Seed = None,
    points: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE.npz", help="Arrays x (m, d) and maybe y (m,).")
    ] = None,
    bias: Bias = False,
    activation: Slopes = "relu",
    loss: LossName = "mse",
    excess: Annotated[
        float, tyro.conf.arg(help="By what share a trace may exceed the least.")
    ] = 0.0,
    as_json: Json = False,
) -> int:
    training = training_set(data, distribution, n, d, seed)
    x, y = asked(training, points)
    found = flattest_range(MLP(1, bias=bias, activation=activation), training, x, excess, loss)
    ends = {
        "least": found.low,
        "greatest": found.high,
        "least, no dead neuron": found.live_low,
        "greatest, no dead neuron": found.live_high,
    }
    labels = {} if y is None else {"label": y}
    errors = {} if y is None else {"errors": found.errors(y), "live_errors": found.errors(y, True)}
    rows = zip(*({"point": np.arange(len(x))} | labels | ends).values(), strict=True)
    shown = grid(("point", *labels, *ends), ([f"{v:.6g}" for v in row] for row in rows))
    answer = {"least_trace": found.least, "excess": excess, **labels, **ends, **errors}
    output(as_json, answer, shown, *sentences(errors))
    return 0


def asked(training: Dataset, file: Path | None) -> tuple[np.ndarray, np.ndarray | None]:
    """The points and their labels, if there are any."""
    if file is not None:
        found = read_arrays(file)
        if "x" not in found:
            raise FlattestError(f"{file.name} must hold an array x of points.")
        return found["x"], found.get("y")
    if training.distribution is None:
        raise FlattestError("Say at which points: --points FILE.npz with an array x.")
    population = training.distribution.population(FIRST)
    return population.x[:FIRST], population.y[:FIRST]


def sentences(errors: dict[str, tuple[float, float]]) -> list[str]:
    """What the ranges say of the zero-one error at the points."""
    who = {"errors": "flattest networks", "live_errors": "flattest networks without dead neurons"}
    return [
        f"All {who[name]} err on a share {least:.3g} of the points, some on up to {most:.3g}."
        for name, (least, most) in errors.items()
    ]
