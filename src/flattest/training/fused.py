"""The fused engine: Numba kernels for the papers' networks, at the papers' full scale.

The entry point is that of `state.State`; `kernels` says how it is fast.
"""

from dataclasses import replace
from typing import cast

import numpy as np

from flattest.errors import FlattestError
from flattest.problem.losses import MSE, HalfMSE, Logistic
from flattest.problem.models import MLP
from flattest.training.algorithms import Phase
from flattest.training.kernels import batches, common, sim_bn, single
from flattest.training.kernels.signs import CHUNK, GROUP, sign_codes
from flattest.training.kernels.simd import BLOCK, PANEL, VECTOR_BYTES
from flattest.training.order import stream_seed
from flattest.training.state import Halt, Problem, State

_STEPS_AT_ONCE = 30_000  # so that an interrupt is heard within seconds
_HALTS: dict[int, Halt | None] = {
    common.RUNNING: None,
    common.STOPPED: "stopped",
    common.DIVERGED: "diverged",
}
_LOSSES: dict[type, int] = {MSE: common.MSE, HalfMSE: common.HALF_MSE, Logistic: common.LOGISTIC}
KERNELS = {
    "leaky": common.LEAKY,
    "softplus": common.SOFTPLUS,
    "quadratic": common.QUADRATIC,
    "power": common.POWER,
}
_NORMS = {None: common.TWO_LAYER, "sim_ln": common.SIM_LN, "sim_bn": common.SIM_BN}


def supports(model, loss, phase: Phase) -> str | None:
    """None where this engine trains `model` by `phase`, else one sentence saying why not."""
    if not isinstance(model, MLP):
        return f"The fused engine trains flattest's MLP, not a {type(model).__name__}."
    if model.sigma.kernel is None:
        return f"The fused engine has no kernel for the activation {model.activation!r}."
    if type(loss) not in _LOSSES:
        return f"The fused engine has no kernel for the loss {type(loss).__name__}."
    if model.depth > 3:
        return f"The fused engine trains networks of depth 2 and 3, not {model.depth}."
    if _largest_rate(phase) * phase.weight_decay >= 1:
        return "The fused engine takes steps with learning rate · weight decay < 1 only."
    return None


def _largest_rate(phase: Phase) -> float:
    return phase.lr * max(1.0, phase.step_change.factor if phase.step_change else 1.0)


def advance(problem: Problem, phase: Phase, state: State, epochs: int) -> State:
    """The state after `epochs` more epochs of the phase, or at the epoch that halted it."""
    if (reason := supports(problem.model, problem.loss, phase)) is not None:
        raise FlattestError(reason)
    at_once = max(1, _STEPS_AT_ONCE // phase.steps_per_epoch(problem.data.n))
    while epochs > 0 and state.halt is None:
        count = min(epochs, at_once)
        state = _advance_chunk(problem, phase, state, count)
        epochs -= count
    return state


def _advance_chunk(problem: Problem, phase: Phase, state: State, epochs: int) -> State:
    params, halt = _run(problem, phase, state, epochs)
    if halt.why == common.DIVERGED:
        # A diverged epoch is not applied, and kernels keep no copy: go again, up to it.
        params, _ = _run(problem, phase, state, halt.epochs)
    per_epoch = phase.steps_per_epoch(problem.data.n)
    return replace(
        state,
        params=params,
        epoch=state.epoch + halt.epochs,
        step=state.step + halt.epochs * per_epoch + halt.steps,
        phase_epoch=state.phase_epoch + halt.epochs,
        changed=halt.changed,
        halt=_HALTS[halt.why],
    )


def _run(problem: Problem, phase: Phase, state: State, epochs: int):
    """Parameters and the kernel's report after `epochs` epochs."""
    n, model = problem.data.n, cast(MLP, problem.model)
    settings = _net(model), _target(problem.loss), _rule(phase, n)
    clock = common.Clock(
        stream_seed(problem.seed),
        state.epoch,
        epochs,
        state.phase_epoch * phase.steps_per_epoch(n),
        bool(state.changed),
    )
    trained = _layout(model, phase, n)(model, problem.data, state.params)
    halt = common.Halt(*trained.run(*settings, clock))
    return trained.params(), halt


def _layout(model: MLP, phase: Phase, n: int):
    """Single samples have kernels of their own."""
    if phase.steps_per_epoch(n) < n:
        return _Flat
    return _Normalized if model.norm == "sim_bn" else _Tiled


class _Tiled:
    """Parameters as `single` has them: (W1, b1) in tiles of neurons; W2 transposed, if hidden."""

    def __init__(self, model: MLP, data, params):
        self.model, dtype = model, params["W1"].dtype
        x = _augmented(data.x, model.bias)
        y = np.ascontiguousarray(data.y, np.float64)
        self.data = x.astype(dtype), (x @ x.T).astype(dtype), y
        lanes = VECTOR_BYTES // dtype.itemsize
        self.W = _tiles(_padded(_first_layer(model, params), 0, 2 * lanes), lanes)
        hidden = params["W2"] if model.depth == 3 else np.empty((0, 0), dtype)
        self.W2 = _padded(hidden.T, 1, 2 * lanes)
        self.a = _padded(params[f"W{model.depth}"], 0, 2 * lanes)
        self.b = np.full(1, params["b_out"] if model.output_bias else 0, dtype)

    def run(self, *settings):
        theta = self.W, self.W2, self.a, self.b
        return single.run(theta, self.model.width, self.data, *settings)

    def params(self) -> dict[str, np.ndarray]:
        m = self.model.width
        first = _rows(self.W, m)
        rest = {"W2": self.W2[:, :m].T, f"W{self.model.depth}": self.a[:m]}
        return _named(self.model, first, rest, self.b)


class _Normalized:
    """Parameters as `sim_bn` has them: (W1, b1) in tiles, everything padded by 0."""

    def __init__(self, model: MLP, data, params):
        self.model, dtype = model, params["W1"].dtype
        x = _augmented(data.x, model.bias).astype(dtype)
        self.inputs = x.shape[1]
        self.data = _samples(x, data.y)
        lanes = PANEL * VECTOR_BYTES // dtype.itemsize
        first = _padded(_first_layer(model, params), 1, self.data.x.shape[1])
        self.W = _tiles(first, lanes)
        self.gamma, self.a = (_padded(params[k], 0, lanes) for k in ("gamma", "W2"))
        self.b = np.full(1, params["b_out"] if model.output_bias else 0, dtype)

    def run(self, *settings):
        return sim_bn.run((self.W, self.gamma, self.a, self.b), self.data, *settings)

    def params(self) -> dict[str, np.ndarray]:
        m = self.model.width
        first = _rows(self.W, m)[:, : self.inputs]
        return _named(self.model, first, {"gamma": self.gamma[:m], "W2": self.a[:m]}, self.b)


class _Flat:
    """Parameters as `batches` has them: one vector, matrices inputs × neurons."""

    def __init__(self, model: MLP, data, params):
        self.model, dtype = model, params["W1"].dtype
        self.x = _augmented(data.x, model.bias).astype(dtype)
        self.y = np.ascontiguousarray(data.y, np.float64)
        self.names = [k for k in ("gamma", "W2", "W3") if k in params]
        pieces = [_first_layer(model, params), *(params[k] for k in self.names)]
        bias = params["b_out"] if model.output_bias else 0
        flat = [np.asarray(piece).T.ravel() for piece in (*pieces, bias)]
        self.theta = np.concatenate(flat).astype(dtype)

    def run(self, *settings):
        return batches.run(self.theta, self.model.width, (self.x, self.y), *settings)

    def params(self) -> dict[str, np.ndarray]:
        m, inputs = self.model.width, self.x.shape[1]
        at = m * inputs
        first, rest = self.theta[:at].reshape(inputs, m).T, {}
        for name in self.names:
            matrix = name == "W2" and self.model.depth == 3
            size = m * m if matrix else m
            piece = self.theta[at : at + size]
            rest[name] = piece.reshape(m, m).T if matrix else piece
            at += size
        return _named(self.model, first, rest, self.theta[at:])


def _samples(x: np.ndarray, y: np.ndarray) -> sim_bn.Samples:
    """Training inputs x', padded, in all the forms that products with them take."""
    signs = bool((np.abs(x) == 1).all())
    codes = x if signs else x[:, :0]
    sample_codes, input_codes = sign_codes(codes), sign_codes(codes.T)
    x = _padded(x, 1, GROUP * CHUNK)
    by_sample = _padded(x, 0, BLOCK).reshape(-1, BLOCK, x.shape[1]).transpose(0, 2, 1)
    by_input = x.reshape(len(x), -1, BLOCK).transpose(1, 0, 2)
    y = np.ascontiguousarray(y, np.float64)
    return sim_bn.Samples(x, y, by_sample.copy(), by_input.copy(), signs, sample_codes, input_codes)


def _first_layer(model: MLP, params) -> np.ndarray:
    """(W1, b1), or W1 without a bias."""
    return np.column_stack([params["W1"], params["b1"]]) if model.bias else params["W1"]


def _named(model: MLP, first, rest, bias) -> dict[str, np.ndarray]:
    """The parameters by name, as new arrays in the model's order."""
    d = first.shape[1] - model.bias
    found = {"W1": first[:, :d], "b1": first[:, -1], **rest, "b_out": bias[0]}
    return {name: np.array(found[name], order="C") for name in model.shapes(d)}


def _augmented(x: np.ndarray, bias: bool) -> np.ndarray:
    """Rows x' = (x, 1), or x without a bias."""
    x = np.asarray(x, np.float64)
    return np.column_stack([x, np.ones(len(x))]) if bias else np.ascontiguousarray(x)


def _padded(array: np.ndarray, axis: int, multiple: int) -> np.ndarray:
    """An aligned copy with zeros after it, so that the axis is a multiple."""
    shape = list(array.shape)
    shape[axis] += -shape[axis] % multiple
    padded = _aligned(tuple(shape), array.dtype)
    padded[tuple(slice(size) for size in array.shape)] = array
    return padded


def _tiles(weights: np.ndarray, lanes: int) -> np.ndarray:
    """(neurons, inputs) → (tiles, inputs, lanes), on a vector boundary, padded by 0."""
    tall = _padded(weights, 0, lanes)
    tiled = _aligned((len(tall) // lanes, weights.shape[1], lanes), weights.dtype)
    tiled[...] = tall.reshape(-1, lanes, weights.shape[1]).transpose(0, 2, 1)
    return tiled


def _rows(tiled: np.ndarray, neurons: int) -> np.ndarray:
    """The inverse of `_tiles`."""
    return tiled.transpose(0, 2, 1).reshape(-1, tiled.shape[1])[:neurons]


def _aligned(shape: tuple[int, ...], dtype) -> np.ndarray:
    """Zeros that begin on a vector boundary."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + VECTOR_BYTES, np.uint8)
    start = -raw.ctypes.data % VECTOR_BYTES
    return raw[start : start + size].view(dtype).reshape(shape)


def _net(model: MLP) -> common.Net:
    kernel, parameter = cast(tuple[str, float], model.sigma.kernel)
    family = common.THREE_LAYER if model.depth == 3 else _NORMS[model.norm]
    return common.Net(
        family, KERNELS[kernel], parameter, float(model.epsilon), bool(model.output_bias)
    )


def _target(loss) -> common.Target:
    return common.Target(_LOSSES[type(loss)], float(getattr(loss, "smoothing", 0.0)))


def _rule(phase: Phase, n: int) -> common.Rule:
    batch = n if phase.batch is None else phase.batch
    change = phase.step_change
    return common.Rule(
        batch=batch,
        micro_batch=phase.micro_batch or batch,
        full=phase.batch is None,
        replacement=bool(phase.replacement),
        lr=float(phase.lr),
        warmup=float(phase.warmup),
        rho=float(phase.rho),
        normalized=phase.ascent == "normalized",
        decay=float(phase.weight_decay),
        noise=float(phase.label_noise),
        radius=np.inf if phase.project is None else float(phase.project),
        change_below=-np.inf if change is None else float(change.below),
        change_factor=1.0 if change is None else float(change.factor),
        stop_loss=-np.inf if phase.stop_loss is None else float(phase.stop_loss),
    )
