"""The flattest two-layer network on a training set, of any width, with the proof that it is.

Prints the least Tr ∇²L over all interpolators, the lower bound that a dual proves, their gap,
whether the least is attained by a differentiable network, and the network's own trace and width.
The exit code is 0 when the gap is at most 1e-8, else 1. All activation patterns of the data are
enumerated where they are few: 10 points in 4 dimensions take a second. Of more, up to 60 points,
some are generated, and the bound is what branch and bound proves.

Examples:

    flattest flattest --distribution xor --n 12 --d 4
    flattest flattest --distribution ball --n 10 --d 3 --bias -o flattest.safetensors
    python -c "import numpy; numpy.savez('mine.npz', x=numpy.eye(4), y=[1, -1, 1, -1])"
    flattest flattest --data mine.npz --activation leaky_relu:0.1 --json
"""

from pathlib import Path
from typing import Annotated

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
from flattest.flatness.convex.network import FlattestNetwork, flattest_network
from flattest.problem.losses import loss as resolve_loss
from flattest.problem.models import MLP
from flattest.problem.networks import Network, save_network


def command(
    data: DataFile = None,
    distribution: DistributionName = None,
    n: Points = None,
    d: Dimension = None,
    seed: Seed = None,
    bias: Bias = False,
    activation: Slopes = "relu",
    loss: LossName = "mse",
    excess: Annotated[
        float, tyro.conf.arg(help="By what share the network's trace may exceed the least.")
    ] = 1e-6,
    out: Annotated[
        Path | None,
        tyro.conf.arg(aliases=["-o"], metavar="FILE", help="Write the network to this file."),
    ] = None,
    as_json: Json = False,
) -> int:
    training = training_set(data, distribution, n, d, seed)
    found = flattest_network(MLP(1, bias=bias, activation=activation), training, loss, None, excess)
    if out is not None:
        save_network(out, Network(found.model, found.params, training, resolve_loss(loss)))
    answer = summary(found)
    rows = ((name, v if isinstance(v, str) else f"{v:.12g}") for name, v in answer.items())
    output(as_json, answer, grid(("", ""), rows, show_header=False))
    return 0 if found.certificate.holds else 1


def summary(found: FlattestNetwork) -> dict[str, str | float]:
    return {
        "least trace": found.least,
        "proven bound": found.bound,
        "gap": found.gap,
        "proof": found.proof,
        "attained": "yes" if found.attained else "no: approached by differentiable networks",
        "trace of the network": found.trace,
        "width": found.model.width,
    }
