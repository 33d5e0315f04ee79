"""Certify parameters from anywhere: do they interpolate, how flat are they, do they generalize?

Prints the interpolation error, Tr ∇²L, its certified lower bound and their ratio (1 for a
flattest network), whether the network memorizes (wen2023, Definition 4.2) and its test error. The
exit code is 0 when the parameters interpolate to 1e-10 and meet the bound to 1e-9, else 1.

A file from `flattest construct` holds all that is needed. For other safetensors files with arrays
W1, b1, W2, … name the training data; the architecture follows from the shapes, except for the
activation and Sim-LN.

Examples:

    flattest construct memorizer -o memorizer.safetensors
    flattest certify memorizer.safetensors
    python -c "import numpy; numpy.savez('mine.npz', x=numpy.eye(4), y=[1, -1, 1, -1])"
    flattest construct memorizer --data mine.npz -o mine.safetensors
    flattest certify mine.safetensors --data mine.npz --json
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import tyro
from rich.table import Table

from flattest.cli._data import DataFile, Dimension, DistributionName, Points, Seed, training_set
from flattest.cli._options import Json, grid, output
from flattest.errors import FlattestError
from flattest.flatness.certification import Certification, certify
from flattest.problem.data import Estimate
from flattest.problem.losses import MSE, Loss, loss as resolve_loss
from flattest.problem.models import MLP, Params
from flattest.problem.networks import Network, is_network, load_network, load_params, model_of


def command(
    file: Annotated[
        Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE", help="Parameters as safetensors.")
    ],
    data: DataFile = None,
    distribution: DistributionName = None,
    n: Points = None,
    d: Dimension = None,
    seed: Seed = None,
    loss: Annotated[
        str | None,
        tyro.conf.arg(metavar="NAME", help="Its loss; the file's own or mse by default."),
    ] = None,
    activation: Annotated[
        str | None,
        tyro.conf.arg(metavar="NAME", help="σ of a file from elsewhere; relu by default."),
    ] = None,
    norm: Annotated[
        Literal["sim_ln"] | None, tyro.conf.arg(help="Normalization of a file from elsewhere.")
    ] = None,
    epsilon: Annotated[
        float | None, tyro.conf.arg(help="Sim-LN's ε of a file from elsewhere; 1e-5 by default.")
    ] = None,
    as_json: Json = False,
) -> int:
    if data is None and distribution is None:
        if any(option is not None for option in (n, d, seed, loss, activation, norm, epsilon)):
            raise FlattestError("Other options need --data or --distribution.")
        network = load_network(file)
    else:
        model, params, usual = read(file, activation, norm, epsilon)
        training = training_set(data, distribution, n, d, seed)
        network = Network(model, params, training, resolve_loss(loss) if loss else usual)
    found = certify(network.model, network.params, network.data, network.loss)
    output(as_json, asdict(found) | {"flattest": found.flattest}, table(network, found))
    return 0 if found.flattest else 1


def read(
    file: Path, activation: str | None, norm: Literal["sim_ln"] | None, epsilon: float | None
) -> tuple[MLP, Params, Loss]:
    """The architecture, its parameters and their usual loss: the file's own, or as given."""
    if is_network(file):
        if any(option is not None for option in (activation, norm, epsilon)):
            raise FlattestError(
                f"{file} says what its architecture is: no --activation, --norm or --epsilon."
            )
        own = load_network(file)
        return own.model, own.params, own.loss
    params = load_params(file)
    model = model_of(params, activation or "relu", norm, 1e-5 if epsilon is None else epsilon)
    return model, params, MSE()


def table(network: Network, found: Certification) -> Table:
    bound = found.bound
    rows = {
        "network": settings(network.model),
        "interpolation error": f"{found.interpolation_error:.3g}",
        "interpolates": "yes" if found.interpolates else "no, so the bound need not hold",
        "has a Hessian": "yes" if found.differentiable else "no, a unit is at its kink on an input",
        "trace": f"{found.trace:.12g}",
        "lower bound": f"{bound.value:.12g} ({bound.reference})" if bound else "none is proven",
        "trace / bound": "none" if found.ratio is None else near_one(found.ratio),
        "flattest": "yes" if found.flattest else "no",
        "memorizing": "yes" if found.memorizing else "no",
        "zero-one test error": estimate(found.test_error),
        "squared test error": estimate(found.test_mse),
    }
    return grid(("", ""), rows.items(), show_header=False)


def settings(model: MLP) -> str:
    """The architecture: its width and depth, and whatever is not as usual."""
    usual = {f.name: f.default for f in msgspec.structs.fields(model)}
    return ", ".join(
        f"{name} {value}"
        for name, value in msgspec.structs.asdict(model).items()
        if name in ("width", "depth") or value != usual[name]
    )


def near_one(ratio: float) -> str:
    """A ratio by its distance from 1, which may be far below its own digits."""
    return f"1 {'+' if ratio >= 1 else '−'} {abs(ratio - 1):.3g}"


def estimate(found: Estimate | None) -> str:
    if found is None:
        return "unknown: the data name no distribution"
    return f"{found.value:.6g}" + (
        " exactly" if found.exact else f" ± {found.stderr:.1g} (sampled)"
    )
