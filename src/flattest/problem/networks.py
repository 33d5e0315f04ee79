"""Networks in one file: parameters and training data as safetensors, the rest as its metadata.

Such a file is self-contained: `load_network` gives back all that a certificate is about. Parameters
from elsewhere are read by `load_params`, and `model_of` finds the architecture from their shapes.
Nothing is ever unpickled: of PyTorch's own files (.pt, .pth) the weights alone are read.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from flattest.errors import FlattestError, first_line
from flattest.files import Changed, present, read_tensors, write_tensors
from flattest.problem.data import Dataset, Examples, Rows
from flattest.problem.distributions import AnyDistribution
from flattest.problem.losses import MSE, Loss
from flattest.problem.models import MLP, Norm, Params

FORMAT = "flattest network 1"
_DATA = {"data.x", "data.y"}
_PYTORCH = (".pt", ".pth", ".bin")
_NESTED = ("state_dict", "model_state_dict", "model")  # what training scripts keep weights under
_EXAMPLES = tuple(f"examples.{name}" for name in Rows._fields)


@dataclass(frozen=True)
class Network:
    """Parameters, the architecture they belong to, and the training set and loss they are for."""

    model: MLP
    params: Params
    data: Dataset
    loss: Loss = MSE()


def save_network(path: str | Path, network: Network) -> None:
    """Writes the network to `path`, whole or not at all."""
    network.model.check(network.params, network.data.d)
    tensors = {k: np.asarray(v, np.float64) for k, v in network.params.items()}
    tensors |= {"data.x": network.data.x, "data.y": network.data.y}
    if isinstance(network.data.distribution, Examples):
        tensors |= dict(zip(_EXAMPLES, network.data.distribution.rows, strict=True))
    metadata = {
        "format": FORMAT,
        "model": _json(network.model),
        "loss": _json(network.loss),
        "distribution": _json(network.data.distribution),
    }
    write_tensors(Path(path), tensors, **metadata, digest=_digest(tensors, metadata))


def load_network(path: str | Path) -> Network:
    """The network that `save_network` wrote, after checking that nothing was changed since."""
    tensors, metadata = _read(Path(path))
    if metadata.get("format") != FORMAT:
        raise FlattestError(
            f"{path} was not written by flattest: say which network and data its parameters are "
            "for, or write it with save_network."
        )
    if metadata.pop("digest", "") != _digest(tensors, metadata) or not tensors.keys() >= _DATA:
        raise _changed(path)
    rows = [tensors.pop(name) for name in _EXAMPLES if name in tensors]
    # Before the spec is read, which knows its arrays by their digest.
    examples = Examples.of(*rows) if rows else None
    distribution = _parse(path, metadata, "distribution", AnyDistribution | None)
    if examples not in (None, distribution):
        raise FlattestError(f"{path} holds other examples than it names.")
    data = Dataset(tensors.pop("data.x"), tensors.pop("data.y"), distribution)
    network = Network(
        _parse(path, metadata, "model", MLP), tensors, data, _parse(path, metadata, "loss", Loss)
    )
    network.model.check(network.params, data.d)
    return network


def _changed(path: str | Path) -> FlattestError:
    return FlattestError(f"{path} was changed after it was written, so it certifies nothing.")


def is_network(path: str | Path) -> bool:
    """Whether `save_network` wrote the file, which then says what its architecture is."""
    return _read(Path(path))[1].get("format") == FORMAT


def load_params(path: str | Path) -> Params:
    """The parameters W1, b1, … of any safetensors file, as float64."""
    tensors, _ = _read(Path(path))
    return {name: value for name, value in tensors.items() if name not in {*_DATA, *_EXAMPLES}}


def model_of(
    params: Mapping[str, np.ndarray],
    activation: str = "relu",
    norm: Norm | None = None,
    epsilon: float = 1e-5,
) -> MLP:
    """The network whose parameters have these names and shapes.

    `gamma` implies Sim-BN; what shapes do not show (σ, Sim-LN and its ε) is given.
    """
    if "W1" not in params or np.ndim(params["W1"]) != 2:
        raise FlattestError(f"Parameters need a matrix W1; given: {', '.join(params) or 'none'}.")
    width, d = np.shape(params["W1"])
    model = MLP(
        width,
        depth=max(2, sum(name.startswith("W") for name in params)),
        bias="b1" in params,
        activation=activation,
        norm="sim_bn" if "gamma" in params else norm,
        output_bias="b_out" in params,
        epsilon=epsilon,
    )
    model.check(dict(params), d)
    return model


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    present(path)
    if path.suffix in _PYTORCH:
        return {name: _float64(path, name, v) for name, v in _pytorch(path).items()}, {}
    try:
        tensors, metadata = read_tensors(path)
    except FlattestError as error:
        if isinstance(error.__cause__, Changed):
            raise _changed(path) from None
        raise FlattestError(f"{path} cannot be read as safetensors: {error.__cause__}.") from None
    return {name: _float64(path, name, value) for name, value in tensors.items()}, metadata


def _pytorch(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a file that torch.save wrote, its weights only: no code in it is run."""
    remedy = (
        "write its weights from where they are known, safetensors.torch.save_file("
        "module.state_dict(), 'weights.safetensors'), and give that file"
    )
    try:
        import torch
    except ImportError:
        raise FlattestError(f"Reading {path} needs PyTorch; or {remedy}.") from None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise FlattestError(
            f"{path} holds more than weights ({first_line(error)}): {remedy}."
        ) from None
    nested = [found[key] for key in _NESTED if isinstance(found, dict) and key in found]
    state = nested[0] if nested else found
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise FlattestError(f"{path} holds no dict of tensors: {remedy}.")
    return {name: value.detach().numpy() for name, value in state.items()}


def _float64(path: Path, name: str, value: np.ndarray) -> np.ndarray:
    if not np.issubdtype(value.dtype, np.floating) and not np.issubdtype(value.dtype, np.integer):
        raise FlattestError(f"{name} in {path} is of type {value.dtype}, not real numbers.")
    return value.astype(np.float64)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _parse(path: str | Path, metadata: dict[str, str], field: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(metadata.get(field, ""), type=kind)
    except (msgspec.DecodeError, FlattestError) as error:
        raise FlattestError(f"The {field} in {path} cannot be read: {error}.") from None


def _digest(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    arrays = {name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}
    parts = [f"{name}{value.shape}".encode() + value.tobytes() for name, value in arrays.items()]
    parts += [f"{name}={metadata[name]};".encode() for name in sorted(metadata)]
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()
