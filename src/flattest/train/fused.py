"""The fused engine: Numba kernels for the papers' networks, at the papers' full scale.

The signature and the step are those of `contract`; `kernels` says how it is fast.
"""

import numpy as np

from flattest.losses import MSE, HalfMSE, Logistic
from flattest.models import MLP
from flattest.train.contract import Advance
from flattest.train.kernels import common, two_layer
from flattest.train.kernels.simd import VECTOR_BYTES
from flattest.train.order import stream_seed

CHUNK = 500_000
"""Steps per kernel call, so that an interrupt is heard within a second or so."""

_LOSSES = {MSE: common.MSE, HalfMSE: common.HALF_MSE, Logistic: common.LOGISTIC}


def supports(model, loss, phase) -> str | None:
    """None where this engine trains `model` by `phase`, else one sentence saying why not."""
    if not isinstance(model, MLP):
        return f"The fused engine trains flattest's MLP, not {type(model).__name__}."
    if _activation(model.activation) is None:
        return f"The fused engine has no kernel for the activation {model.activation!r}."
    if type(loss) not in _LOSSES:
        return f"The fused engine has no kernel for the loss {type(loss).__name__}."
    if model.depth > 2 or model.norm == "sim_bn":
        return f"The fused engine has no kernel for depth {model.depth}, norm {model.norm!r}."
    if phase.batch != 1:
        return "The fused engine has no kernel for batches larger than 1."
    return None


def advance(
    model, data, loss, phase, params, *, seed: int, first_epoch: int, epochs: int, first_step: int
) -> Advance:
    """Trains `epochs` epochs (see `contract`)."""
    state = _TwoLayer(model, data, params)
    net, target, rule = _net(model), _target(loss), _rule(phase)
    done, stop = 0, first_epoch + epochs
    per_chunk = max(1, CHUNK // data.n)
    for epoch in range(first_epoch, stop, per_chunk):
        steps, finite = state.run(
            net,
            target,
            rule,
            stream_seed(seed),
            bool(phase.replacement),
            epoch,
            min(per_chunk, stop - epoch),
            first_step + done,
        )
        done += steps
        if not finite:
            return Advance(state.params(), done, done + 1)
    return _checked(state.params(), done)


def _checked(params, done: int) -> Advance:
    """The last step may overflow where no later one notices."""
    if done and not all(np.isfinite(value).all() for value in params.values()):
        return Advance(params, done - 1, done)
    return Advance(params, done, None)


class _TwoLayer:
    """Parameters in the kernel's layout: W1 and b1 in tiles of neurons, inputs × lanes."""

    def __init__(self, model, data, params):
        self.model, self.dtype = model, params["W1"].dtype
        self.x = augmented(data.x, model.bias)
        self.gram = (self.x @ self.x.T).astype(self.dtype)
        self.x = self.x.astype(self.dtype)
        self.y = np.ascontiguousarray(data.y, np.float64)
        first = [params["W1"], params["b1"][:, None]] if model.bias else [params["W1"]]
        self.W = tiles(np.concatenate(first, axis=1))
        self.a = params["W2"].copy()
        self.b = np.full(1, params["b_out"] if model.output_bias else 0, self.dtype)

    def run(self, *arguments):
        arrays = self.W, self.a, self.b, self.x, self.gram, self.y
        return two_layer.run(*arrays, *arguments)

    def params(self) -> dict[str, np.ndarray]:
        first = rows(self.W, self.a.size)
        d = self.x.shape[1] - self.model.bias
        params = {"W1": first[:, :d].copy()}
        if self.model.bias:
            params["b1"] = first[:, d].copy()
        params["W2"] = self.a.copy()
        if self.model.output_bias:
            params["b_out"] = self.b[0].copy().reshape(())
        return params


def augmented(x: np.ndarray, bias: bool) -> np.ndarray:
    """Rows x' = (x, 1), or x without a bias."""
    x = np.asarray(x, np.float64)
    return np.column_stack([x, np.ones(len(x))]) if bias else np.ascontiguousarray(x)


def tiles(weights: np.ndarray) -> np.ndarray:
    """(neurons, inputs) → (tiles, inputs, lanes), on a vector boundary, padded by 0."""
    neurons, inputs = weights.shape
    lanes = VECTOR_BYTES // weights.itemsize
    count = -(-neurons // lanes)
    out = aligned((count, inputs, lanes), weights.dtype)
    padded = np.zeros((count * lanes, inputs), weights.dtype)
    padded[:neurons] = weights
    out[...] = padded.reshape(count, lanes, inputs).transpose(0, 2, 1)
    return out


def rows(tiled: np.ndarray, neurons: int) -> np.ndarray:
    """The inverse of `tiles`."""
    return tiled.transpose(0, 2, 1).reshape(-1, tiled.shape[1])[:neurons]


def aligned(shape: tuple[int, ...], dtype) -> np.ndarray:
    """Zeros that begin on a vector boundary."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + VECTOR_BYTES, np.uint8)
    start = -raw.ctypes.data % VECTOR_BYTES
    return raw[start : start + size].view(dtype).reshape(shape)


def _activation(name: str) -> tuple[int, float] | None:
    """Code and parameter of a built-in activation."""
    kind, _, slope = name.partition(":")
    if kind in ("relu", "linear", "leaky_relu"):
        default = {"relu": 0.0, "linear": 1.0, "leaky_relu": 0.01}[kind]
        return common.LEAKY, float(slope) if slope else default
    if name in ("softplus", "quadratic"):
        return (common.SOFTPLUS if name == "softplus" else common.QUADRATIC), 0.0
    if name.startswith("relu^"):
        return common.POWER, float(name.removeprefix("relu^"))
    return None


def _net(model) -> common.Net:
    code, parameter = _activation(model.activation)
    layer_norm = model.norm == "sim_ln"
    return common.Net(code, parameter, layer_norm, float(model.epsilon), bool(model.output_bias))


def _target(loss) -> common.Target:
    return common.Target(_LOSSES[type(loss)], float(getattr(loss, "smoothing", 0.0)))


def _rule(phase) -> common.Rule:
    return common.Rule(
        lr=float(phase.lr),
        warmup=float(phase.warmup or 0),
        rho=float(phase.rho),
        normalized=phase.ascent == "normalized",
        decay=float(phase.weight_decay),
        noise=float(phase.label_noise),
        radius=np.inf if phase.project is None else float(phase.project),
    )
