"""Construct a network from a proof and write it, with its training data, to a file.

The certificate says how its sharpness compares with the proven bound; the exit code is 0 when it
holds, else 1. Constructions: memorizer, xor-generalizer, head-generalizer, circle-generalizer,
sim-ln-memorizer, sim-ln-generalizer, sim-bn-optimum, sim-bn-spike, no-bias-xor.

Examples:

    flattest construct memorizer -o memorizer.safetensors
    python -c "import numpy; numpy.savez('mine.npz', x=numpy.eye(4), y=[1, -1, 1, -1])"
    flattest construct memorizer --depth 3 --width 500 --data mine.npz -o mine.safetensors
    flattest construct sim-bn-optimum --n 40 --d 6 -o optimum.safetensors
    flattest construct sim-bn-spike --n 116 --d 30 --excess 5e-9 -o spike.safetensors
    flattest certify memorizer.safetensors     checks the file anew
"""

import inspect
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import tyro

from flattest.cli._data import (
    DataFile,
    Dimension,
    DistributionName,
    LossName,
    Points,
    Seed,
    training_set,
)
from flattest.cli._options import console
from flattest.errors import FlattestError, require_known
from flattest.experiments.registry import papers
from flattest.problem.losses import loss as resolve_loss
from flattest.problem.networks import Network, save_network

_DATA = {
    "sim-bn-optimum": "complete_xor",
    "sim-bn-spike": "complete_xor",
    "circle-generalizer": "circle",
}


def command(
    name: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help="Which construction.")
    ],
    output: Annotated[
        Path, tyro.conf.arg(aliases=["-o"], metavar="FILE", help="Where to write it.")
    ],
    data: DataFile = None,
    distribution: DistributionName = None,
    n: Points = None,
    d: Dimension = None,
    seed: Seed = None,
    loss: LossName = "mse",
    depth: Annotated[int | None, tyro.conf.arg(help="Layers D (memorizer).")] = None,
    width: Annotated[
        int | None, tyro.conf.arg(help="Neurons per layer; by default the fewest.")
    ] = None,
    epsilon: Annotated[
        float | None, tyro.conf.arg(help="Sim-LN's ε, or the tilt ε of no-bias-xor.")
    ] = None,
    excess: Annotated[
        float | None, tyro.conf.arg(help="Sharpness above the infimum (sim-bn-spike).")
    ] = None,
    s: Annotated[
        int | None,
        tyro.conf.arg(help="How many coordinates the label depends on (head-generalizer)."),
    ] = None,
) -> int:
    build = construction(name)
    options = accepted(name, build, depth=depth, width=width, epsilon=epsilon, excess=excess, s=s)
    drawn = distribution if data or distribution else _DATA.get(name, "xor")
    training = training_set(data, drawn, n, d, seed)
    built = build(training, loss=loss, **options)
    save_network(output, Network(built.model, built.params, training, resolve_loss(loss)))
    made = f"{output}: width {built.model.width}, depth {built.model.depth}"
    console().print(f"{made}\n{built.certificate}", markup=False)
    return 0 if built.certificate.holds else 1


def construction(name: str) -> Callable[..., Any]:
    """The construction of that name, whichever paper it is from."""
    modules = [paper.module("constructions") for paper in papers().values()]
    found = dict(chain(*(getattr(m, "CONSTRUCTIONS", {}).items() for m in modules)))
    require_known("construction", name, found)
    return found[name]


def accepted(name: str, build, **given) -> dict[str, Any]:
    """The options that were given, if the construction has them all, and those it needs."""
    parameters = inspect.signature(build).parameters
    options = {key: value for key, value in given.items() if value is not None}
    for option in options:
        if option not in parameters:
            raise FlattestError(f"The construction {name} has no option --{option}.")
    if "s" in parameters and "s" not in options:
        raise FlattestError(f"The construction {name} needs --s.")
    return options
