"""The fused engine: Numba kernels for the papers' networks, at the papers' full scale.

The entry point is that of `state.State`; `kernels` says how it is fast.
"""

from dataclasses import replace
from typing import cast

import msgspec
import numpy as np

from flattest.errors import FlattestError
from flattest.problem.losses import MSE, HalfMSE, Logistic
from flattest.problem.models import MLP
from flattest.training.algorithms import Phase
from flattest.training.kernels import batches, common, sim_bn, single
from flattest.training.kernels.signs import CHUNK, GROUP, sign_codes
from flattest.training.kernels.simd import BLOCK, PANEL, VECTOR_BYTES
from flattest.training.order import stream_seed
from flattest.training.state import HALTS, Problem, State

_STEPS_AT_ONCE = 30_000  # so that an interrupt is heard within seconds
_LOSSES: dict[type, int] = {MSE: common.MSE, HalfMSE: common.HALF_MSE, Logistic: common.LOGISTIC}
KERNELS = {
    "leaky": common.LEAKY,
    "softplus": common.SOFTPLUS,
    "quadratic": common.QUADRATIC,
    "power": common.POWER,
    "tanh": common.TANH,
    "silu": common.SILU,
    "gelu": common.GELU,
}
# What of a phase the kernels carry out.
_SETTINGS = frozenset(
    {
        *("lr", "epochs", "steps", "batch", "rho", "ascent", "micro_batch", "weight_decay"),
        *("label_noise", "replacement", "warmup", "step_change", "project", "stop_loss", "pattern"),
    }
)
_ASCENTS = ("normalized", "unnormalized")
NORMS = {None: common.TWO_LAYER, "sim_ln": common.SIM_LN, "sim_bn": common.SIM_BN}


def supports(model, loss, phase: Phase) -> str | None:
    """None where this engine trains `model` by `phase`, else one sentence saying why not."""
    if not isinstance(model, MLP):
        return f"The fused engine trains flattest's MLP, not a {type(model).__name__}."
    if model.sigma.kernel is None:
        return f"The fused engine has no kernel for the activation {model.activation!r}."
    if type(loss) not in _LOSSES:
        return f"The fused engine has no kernel for the loss {type(loss).__name__}."
    if model.norm not in NORMS:
        return f"The fused engine has no kernel for the norm {model.norm!r}."
    if model.depth > 3:
        return f"The fused engine trains networks of depth 2 and 3, not {model.depth}."
    if phase.ascent not in _ASCENTS:
        return f"The fused engine has no kernel for the ascent {phase.ascent!r}."
    for field in msgspec.structs.fields(phase):
        if field.name not in _SETTINGS and getattr(phase, field.name) != field.default:
            return f"The fused engine has no kernel for the phase's setting {field.name!r}."
    if phase.lr * max(1.0, phase.numbers["change_factor"]) * phase.weight_decay >= 1:
        return "The fused engine takes steps with learning rate · weight decay < 1 only."
    return None


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
    steps = halt.epochs * phase.steps_per_epoch(problem.data.n) + halt.steps
    return replace(
        state,
        params=params,
        epoch=state.epoch + halt.epochs,
        step=state.step + steps,
        phase_epoch=state.phase_epoch + halt.epochs,
        changed=halt.changed,
        halt=HALTS[halt.why],
    )


def _run(problem: Problem, phase: Phase, state: State, epochs: int):
    """Parameters and the kernel's report after `epochs` epochs."""
    n, model = problem.data.n, cast(MLP, problem.model)
    clock = common.Clock(
        stream_seed(problem.seed),
        state.epoch,
        epochs,
        state.phase_epoch * phase.steps_per_epoch(n),
        bool(state.changed),
    )
    smoothing = float(getattr(problem.loss, "smoothing", 0.0))
    target = common.Target(_LOSSES[type(problem.loss)], smoothing)
    settings = _net(model), target, _rule(phase, n), clock
    params, report = _layout(model, phase, n)(model, problem.data, state.params, *settings)
    return params, common.Halt(*report)


def _layout(model: MLP, phase: Phase, n: int):
    """Single samples have kernels of their own."""
    if phase.steps_per_epoch(n) < n:
        return _flat
    return _normalized if model.normalization.by_neuron else _tiled


def _tiled(model: MLP, data, params, *settings):
    """Parameters as `single` has them: (W1, b1) in tiles of neurons; W2 transposed, if hidden."""
    m, last, dtype = model.width, f"W{model.depth}", params["W1"].dtype
    x = _augmented(data.x, model.bias)
    samples = x.astype(dtype), (x @ x.T).astype(dtype), _labels(data.y)
    lanes = VECTOR_BYTES // dtype.itemsize
    W = _tiles(_padded(_first_layer(model, params), 0, 2 * lanes), lanes)
    hidden = params["W2"] if model.depth == 3 else np.empty((0, 0), dtype)
    W2 = _padded(hidden.T, 1, 2 * lanes)
    a, b = _padded(params[last], 0, 2 * lanes), _output_bias(model, params)
    report = single.run((W, W2, a, b), m, samples, *settings)
    return _named(model, _rows(W, m), {"W2": W2[:, :m].T, last: a[:m]}, b), report


def _normalized(model: MLP, data, params, *settings):
    """Parameters as `sim_bn` has them: (W1, b1) in tiles, everything padded by 0."""
    m, dtype = model.width, params["W1"].dtype
    x = _augmented(data.x, model.bias).astype(dtype)
    samples = _samples(x, data.y)
    lanes = PANEL * VECTOR_BYTES // dtype.itemsize
    W = _tiles(_padded(_first_layer(model, params), 1, samples.x.shape[1]), lanes)
    gamma, a = (_padded(params[name], 0, lanes) for name in ("gamma", "W2"))
    b = _output_bias(model, params)
    report = sim_bn.run((W, gamma, a, b), samples, *settings)
    first = _rows(W, m)[:, : x.shape[1]]
    return _named(model, first, {"gamma": gamma[:m], "W2": a[:m]}, b), report


def _flat(model: MLP, data, params, net: common.Net, *settings):
    """Parameters as `batches` has them: one vector, matrices inputs × neurons."""
    m, dtype = model.width, params["W1"].dtype
    x = _augmented(data.x, model.bias).astype(dtype)
    upper = [params[name] for name in ("gamma", "W2", "W3") if name in params]
    pieces = _first_layer(model, params), *upper, _output_bias(model, params)
    theta = np.concatenate([np.asarray(piece).T.ravel() for piece in pieces]).astype(dtype)
    report = batches.run(theta, m, (x, _labels(data.y)), net, *settings)
    first, gamma, hidden, a, b = batches.split.py_func(net, theta, x.shape[1], m)
    rest = {"gamma": gamma, "W2": hidden.T, f"W{model.depth}": a}
    return _named(model, first.T, rest, b), report


def _samples(x: np.ndarray, y: np.ndarray) -> sim_bn.Samples:
    """Training inputs x', padded, in all the forms that products with them take."""
    signs = bool((np.abs(x) == 1).all())
    codes = x if signs else x[:, :0]
    x = _padded(x, 1, GROUP * CHUNK)
    by_sample = _padded(x, 0, BLOCK).reshape(-1, BLOCK, x.shape[1]).transpose(0, 2, 1)
    by_input = x.reshape(len(x), -1, BLOCK).transpose(1, 0, 2)
    forms = x, _labels(y), by_sample.copy(), by_input.copy()
    return sim_bn.Samples(*forms, signs, sign_codes(codes), sign_codes(codes.T))


def _labels(y: np.ndarray) -> np.ndarray:
    """Not to be written, whatever y is: Numba compiles a kernel anew for arrays that may be."""
    labels = np.ascontiguousarray(y, np.float64).view()
    labels.setflags(write=False)
    return labels


def _output_bias(model: MLP, params) -> np.ndarray:
    """The output bias, 0 where there is none."""
    return np.full(1, params["b_out"] if model.output_bias else 0, params["W1"].dtype)


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
    """A copy that begins on a vector boundary, with zeros that make the axis a multiple."""
    shape = list(array.shape)
    shape[axis] += -shape[axis] % multiple
    size = int(np.prod(shape)) * array.itemsize
    raw = np.zeros(size + VECTOR_BYTES, np.uint8)
    start = -raw.ctypes.data % VECTOR_BYTES
    padded = raw[start : start + size].view(array.dtype).reshape(shape)
    padded[tuple(slice(size) for size in array.shape)] = array
    return padded


def _tiles(weights: np.ndarray, lanes: int) -> np.ndarray:
    """(neurons, inputs) → (tiles, inputs, lanes), on a vector boundary, padded by 0."""
    tiles = _padded(weights, 0, lanes).reshape(-1, lanes, weights.shape[1])
    return _padded(tiles.transpose(0, 2, 1), 0, 1)


def _rows(tiled: np.ndarray, neurons: int) -> np.ndarray:
    """The inverse of `_tiles`."""
    return tiled.transpose(0, 2, 1).reshape(-1, tiled.shape[1])[:neurons]


def _net(model: MLP) -> common.Net:
    kernel, parameter = cast(tuple[str, float], model.sigma.kernel)
    family = common.THREE_LAYER if model.depth == 3 else NORMS[model.norm]
    return common.Net(
        family, KERNELS[kernel], parameter, float(model.epsilon), bool(model.output_bias)
    )


def _rule(phase: Phase, n: int) -> common.Rule:
    batch = phase.batch or n
    return common.Rule(
        batch=batch,
        micro_batch=phase.micro_batch or batch,
        full=phase.batch is None,
        replacement=bool(phase.replacement),
        normalized=phase.ascent == "normalized",
        kept=phase.pattern == "kept",
        **phase.numbers,
    )
