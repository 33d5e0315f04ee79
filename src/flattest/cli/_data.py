"""What commands on two-layer networks are given: a training set (a file, or a draw), and more."""

from pathlib import Path
from typing import Annotated

import msgspec
import tyro

from flattest.errors import FlattestError, require_known
from flattest.problem.data import Dataset
from flattest.problem.distributions import AnyDistribution

DataFile = Annotated[
    Path | None,
    tyro.conf.arg(metavar="FILE.npz", help="Training data: arrays x (n, d) and y (n,)."),
]
DistributionName = Annotated[
    str | None,
    tyro.conf.arg(metavar="NAME", help="Draw the training data: xor, complete_xor, ball, circle."),
]
Points = Annotated[int | None, tyro.conf.arg(help="Number of points to draw.")]
Dimension = Annotated[int | None, tyro.conf.arg(help="Input dimension to draw.")]
Seed = Annotated[int | None, tyro.conf.arg(help="Seed of the draw; 0 by default.")]
LossName = Annotated[str, tyro.conf.arg(metavar="NAME", help="mse, half_mse or logistic.")]
Bias = Annotated[bool, tyro.conf.arg(help="Networks with a bias in the first layer.")]
Slopes = Annotated[str, tyro.conf.arg(metavar="NAME", help="relu or leaky_relu:SLOPE.")]

# (n, d) where they are not given: the paper's, and the smallest round ones for the others.
_SIZES = {"xor": (100, 30), "complete_xor": (120, 30), "ball": (100, 10), "circle": (20, 2)}


def training_set(file: Path | None, name: str | None, n, d, seed: int | None) -> Dataset:
    """The data in `file`, or n points of the distribution called `name`."""
    if file is not None:
        if any(option is not None for option in (name, n, d, seed)):
            raise FlattestError("Give a file of data or a distribution to draw from, not both.")
        return Dataset.load(file)
    if name is None:
        raise FlattestError("Say which data: --data FILE.npz, or --distribution xor, say.")
    usual_n, usual_d = _SIZES[require_known("distribution", name, _SIZES)]
    try:
        distribution = msgspec.convert(
            {"type": name, "d": usual_d if d is None else d}, AnyDistribution
        )
    except msgspec.ValidationError as error:
        raise FlattestError(str(error)) from error
    return distribution.draw(usual_n if n is None else n, seed or 0)
