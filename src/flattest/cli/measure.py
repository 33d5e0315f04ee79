"""Measure how flat your own network is, in a way that no rescaling can fake.

Prints Tr ∇²L, the least trace over all rescalings of its units, their ratio, the top eigenvalue and
each layer's share. --model names a function that builds the network without its parameters: a
torch.nn.Module (needs flattest[torch]), one of flattest's models, or a JAX function f(params, x).
The parameters are read from the safetensors file; the data from an .npz with arrays x and y.
--out writes the parameters of the flattest rescaled network.

A file that flattest wrote itself (construct, save_network) needs neither model nor data.

Examples:

    flattest example                writes net.safetensors, net.py and data.npz
    flattest measure net.safetensors --model net.py:build --data data.npz
    flattest measure net.safetensors --model net.py:build --data data.npz \\
        --loss half_mse --json --out flat.safetensors
    flattest construct memorizer -o memorizer.safetensors && flattest measure memorizer.safetensors
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.markup import escape

from flattest.cli import _user_file
from flattest.cli._options import Build, Json, LossName, SampleFile, output
from flattest.errors import FlattestError
from flattest.files import read_arrays, write_tensors
from flattest.flatness.measurement import Measurement
from flattest.problem.networks import load_network, load_params


def command(
    checkpoint: Annotated[
        Path,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="FILE", help="Parameters: .safetensors or .pt."),
    ],
    build: Build = None,
    data: SampleFile = None,
    loss: LossName = None,
    out: Annotated[
        Path | None,
        tyro.conf.arg(metavar="FILE", help="Where to write the flattest rescaled parameters."),
    ] = None,
    as_json: Json = False,
) -> None:
    found = measured(checkpoint, build, data, loss)
    if out is not None:
        write_tensors(out, rescaled_tensors(found))
    output(as_json, found.as_dict(), escape(str(found)))


def measured(
    checkpoint: Path, build: str | None, data: Path | None, loss: str | None
) -> Measurement:
    from flattest.flatness.measure import measure

    if build is None and data is None:
        if loss is not None:
            raise FlattestError("A file that is measured by itself has its own loss: no --loss.")
        network = load_network(checkpoint)
        return measure(network.model, network.params, network.data, network.loss)
    if build is None or data is None:
        raise FlattestError("Give both --model FILE.py:FUNCTION and --data FILE.npz.")
    params, arrays = load_params(checkpoint), read_arrays(data, "x", "y")
    sample, loss = (arrays["x"], arrays["y"]), loss or "mse"
    network = _user_file.run(_user_file.load(build), build)
    if _is_module(network):
        import flattest

        return flattest.torch.measure(_with_parameters(network, params), sample, loss)
    return measure(network, params, sample, loss)


def _is_module(network: Any) -> bool:
    """A torch.nn.Module, recognized without importing PyTorch."""
    return any(c.__module__.startswith("torch.nn") for c in type(network).__mro__)


def _with_parameters(module: Any, params: dict[str, np.ndarray]) -> Any:
    """The module in float64 and eval mode, with parameters and buffers from the file."""
    import torch

    state = {name: torch.from_numpy(value) for name, value in params.items()}
    try:
        module.double().load_state_dict(state)
    except RuntimeError as error:
        sentence = " ".join(str(error).split())
        raise FlattestError(f"The checkpoint does not fit the module: {sentence}") from None
    return module.eval()


def rescaled_tensors(found: Measurement) -> dict[str, np.ndarray]:
    if found.rescaled is None:
        raise FlattestError(f"There is no rescaled network to write: {'; '.join(found.notes)}.")
    if _is_module(found.rescaled):
        return {n: value.detach().numpy() for n, value in found.rescaled.state_dict().items()}
    return {name: np.asarray(value) for name, value in found.rescaled.items()}
