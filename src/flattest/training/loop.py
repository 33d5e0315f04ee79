"""The reference engine: any model, any loss, any algorithm, as one jitted JAX loop."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from flattest.problem.losses import per_sample
from flattest.training.algorithms import Phase
from flattest.training.optimizers import Decay, Optimizer, Step, decayed
from flattest.training.order import label_noise_signs, sample_order, stream_seed
from flattest.training.state import HALTS, Problem, State

# Draws handed to one call of the compiled loop: enough to hide its dispatch, little memory.
_DRAWS_AT_ONCE = 200_000
_STOPPED, _DIVERGED = 1, 2


class _Shape(NamedTuple):
    """What of a phase decides the compiled code."""

    batch: int | None
    micro_batch: int | None
    ascent: str | None
    kept: bool
    label_noise: bool
    project: bool
    conditions: bool
    clip: bool
    surrogate: bool
    decay: Decay | None
    optimizer: Optimizer | None
    decays: bool


class _Carry(NamedTuple):
    """The loop's variables; `bad_step` counts the updates before the first infinite output."""

    params: dict
    memory: dict
    epochs: Any
    changed: Any
    halt: Any
    bad_step: Any


def advance(problem: Problem, phase: Phase, state: State, epochs: int) -> State:
    """The state after `epochs` more epochs of the phase, or at the epoch that halted it."""
    chunk = max(1, min(1000, _DRAWS_AT_ONCE // problem.data.n))
    while epochs > 0 and state.halt is None:
        count = min(epochs, chunk)
        inputs = _inputs(problem, phase, state, count, chunk)
        carry = _run_epochs(problem.model, problem.loss, _shape(phase), *inputs)
        state = _unpack(problem, phase, state, jax.device_get(carry))
        epochs -= count
    return state


def _shape(phase: Phase) -> _Shape:
    return _Shape(
        phase.batch,
        phase.micro_batch,
        phase.ascent if phase.rho > 0 else None,
        phase.pattern == "kept",
        phase.label_noise > 0,
        phase.project is not None,
        phase.step_change is not None or phase.stop_loss is not None,
        phase.clip is not None,
        phase.surrogate > 0,
        phase.decay,
        phase.optimizer,
        phase.weight_decay > 0,
    )


def _inputs(problem: Problem, phase: Phase, state: State, count: int, chunk: int) -> tuple:
    """Arguments of the compiled loop; order and signs are padded to `chunk` epochs."""
    data, dtype = problem.data, state.dtype
    order = np.zeros((chunk, data.n), np.int32)
    signs = np.zeros((chunk, data.n if phase.label_noise > 0 else 0), dtype)
    drawn = problem.seed, state.epoch, count, data.n
    order[:count] = (
        np.arange(data.n) if phase.batch is None else sample_order(*drawn, phase.replacement)
    )
    if phase.label_noise > 0:
        signs[:count] = label_noise_signs(*drawn)
    x, y = data.x.astype(dtype), data.y.astype(dtype)
    at = np.int64(state.phase_epoch), np.bool_(state.changed), np.int64(count)
    own = {
        "total": phase.length(data.n) * phase.steps_per_epoch(data.n),
        "clip": phase.clip or np.inf,
        "surrogate": phase.surrogate,
    }
    numbers = {name: np.float64(value) for name, value in (phase.numbers | own).items()}
    # The number of the run's step at which the phase began.
    begun = state.step - state.phase_epoch * phase.steps_per_epoch(data.n)
    key = np.uint64(stream_seed(problem.seed)), np.int64(begun)
    theta = state.params, state.memory or _begun(phase, state.params)
    return theta, x, y, numbers, order, signs, key, *at


def _begun(phase: Phase, params: dict) -> dict:
    """The memory that the phase's optimizer begins with."""
    if phase.optimizer is None:
        return {}
    begun = phase.optimizer.begin({name: jnp.asarray(value) for name, value in params.items()})
    return {name: np.asarray(value) for name, value in begun.items()}


def _unpack(problem: Problem, phase: Phase, state: State, carry: _Carry) -> State:
    done, halt = int(carry.epochs), HALTS[int(carry.halt)]
    step = state.step + done * phase.steps_per_epoch(problem.data.n)
    return replace(
        state,
        params={name: np.asarray(value) for name, value in carry.params.items()},
        memory={name: np.asarray(value) for name, value in carry.memory.items()},
        epoch=state.epoch + done,
        step=step + int(carry.bad_step) if halt == "diverged" else step,
        phase_epoch=state.phase_epoch + done,
        changed=bool(carry.changed),
        halt=halt,
    )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _run_epochs(
    model, loss, shape, theta, x, y, numbers, order, signs, key, phase_epoch, changed, limit
) -> _Carry:
    """At most `limit` epochs of one kind of phase: the code that is compiled."""
    slots, mean, share = _layout(len(x), shape)
    steps, (seed, number) = len(slots), key

    def epoch(carry: _Carry) -> _Carry:
        t = (phase_epoch + carry.epochs) * steps + jnp.arange(steps)
        rates = numbers["lr"] * jnp.minimum(1, (t + 1) / numbers["warmup"])
        if shape.decay is not None:
            rates = rates * shape.decay.factor(t, steps, numbers["total"])
        rates = jnp.where(carry.changed, rates * numbers["change_factor"], rates)
        at = order[carry.epochs][slots]
        targets = y[at]
        if shape.label_noise:
            targets = targets + numbers["noise"].astype(y.dtype) * signs[carry.epochs][slots]
        batches = x[at], targets, mean, share, rates.astype(y.dtype), number + t
        one_step = partial(_own_step, shape.optimizer, jax.random.key(seed))
        if not isinstance(shape.optimizer, Step):
            one_step = partial(_step, model, loss, shape, numbers, x)
        after, finite = lax.scan(one_step, (carry.params, carry.memory), batches)
        return _close_epoch(model, loss, shape, numbers, x, y, carry, after, finite)

    params, memory = theta
    start = _Carry(params, memory, jnp.int64(0), changed, jnp.int32(0), jnp.int64(0))
    return lax.while_loop(lambda c: (c.epochs < limit) & (c.halt == 0), epoch, start)


def _close_epoch(model, loss, shape, numbers, x, y, before: _Carry, after, finite) -> _Carry:
    """The carry after an epoch: an epoch that diverged is dropped, conditions are looked at."""
    params, memory = after
    intact = jnp.array([jnp.isfinite(value).all() for value in params.values()]).all()
    diverged = ~(finite.all() & intact)
    bad_step = jnp.where(finite.all(), finite.size, jnp.argmin(finite))
    changed, stopped = before.changed, False
    if shape.conditions:
        value = per_sample(loss, model.apply(params, x, x), y).mean()
        changed = before.changed | (value < numbers["change_below"])
        stopped = value <= numbers["stop_loss"]
    halt = jnp.where(diverged, _DIVERGED, jnp.where(stopped, _STOPPED, 0)).astype(jnp.int32)
    theta = before.params, before.memory
    params, memory = jax.tree.map(lambda old, new: jnp.where(diverged, old, new), theta, after)
    return _Carry(
        params,
        memory,
        before.epochs + ~diverged,
        jnp.where(diverged, before.changed, changed),
        halt,
        bad_step.astype(jnp.int64),
    )


def _own_step(step: Step, key, theta, batch):
    """One update by a user's function; also whether the parameters are finite after it."""
    x, y, _, _, _, number = batch
    params, memory = theta
    after = step.function(params, (x[0], y[0]), jax.random.fold_in(key, number))
    after = {name: jnp.asarray(after[name], value.dtype) for name, value in params.items()}
    finite = jnp.array([jnp.isfinite(value).all() for value in after.values()]).all()
    return (after, memory), finite


def _step(model, loss, shape, numbers, train_x, theta, batch):
    """One update; also whether the network's output on the batch was finite before it."""
    x, y, mean, share, rate, _ = batch
    params, memory = theta

    def kept(theta, x, train_x):
        return model.apply_in_pattern(params, theta, x, train_x)

    def gradient(apply, at, x, y, mean):
        def batch_loss(theta):
            f = apply(theta, x, train_x)
            return (mean.astype(f.dtype) * per_sample(loss, f, y)).sum(), f

        return jax.grad(batch_loss, has_aux=True)(at)

    def micro_batch(x, y, mean):
        g, f = gradient(model.apply, params, x, y, mean)
        if shape.ascent is not None:
            climb = _CLIMBS[shape.ascent](numbers["rho"].astype(f.dtype), g, params)
            above = jax.tree.map(lambda p, c, u: p + c * u, params, climb, g)
            h, _ = gradient(kept if shape.kept else model.apply, above, x, y, mean)
            g = _ascend_surrogate(numbers["surrogate"], g, h) if shape.surrogate else h
        return g, jnp.isfinite(f).all()

    if len(share) == 1:
        g, finite = micro_batch(x[0], y[0], mean[0])
    else:
        parts, finite = jax.vmap(micro_batch)(x, y, mean)
        g = jax.tree.map(lambda part: jnp.tensordot(share.astype(part.dtype), part, 1), parts)
    if shape.clip:
        norm = _norm(g.values())
        g = jax.tree.map(lambda u: u * jnp.minimum(1, numbers["clip"] / norm).astype(u.dtype), g)
    decay = numbers["decay"].astype(rate.dtype) if shape.decays else None
    if shape.optimizer is None:
        params = jax.tree.map(lambda p, u: p - rate * u, params, decayed(g, params, decay))
    else:
        v, memory = shape.optimizer.direction(g, memory, params, decay)
        params = jax.tree.map(lambda p, v: p - rate * v, params, v)
    return (_project(shape, numbers, params), memory), finite.all()


def _ascend_surrogate(alpha, g, h):
    """h − αg^⊥, with g^⊥ the part of g that is orthogonal to h."""
    dot = sum(jnp.vdot(g[name], h[name]) for name in h)
    square = sum(jnp.vdot(u, u) for u in h.values())
    along = jnp.where(square > 0, dot / jnp.where(square > 0, square, 1), 0)
    return jax.tree.map(lambda g, h: h - alpha.astype(h.dtype) * (g - along * h), g, h)


def _of_length(rho, g):
    """ρ/‖g‖; 0 where g = 0, or so small that its square is."""
    norm = _norm(g.values())
    return jnp.where(norm > 0, rho / jnp.where(norm > 0, norm, 1), 0)


def _adaptive(rho, g, params):
    scale = _of_length(rho, {name: jnp.abs(p) * g[name] for name, p in params.items()})
    return jax.tree.map(lambda p: scale * p**2, params)


# The factors c in ε = c g, by parameter.
_CLIMBS: dict[str, Callable] = {
    "normalized": lambda rho, g, params: dict.fromkeys(params, _of_length(rho, g)),
    "unnormalized": lambda rho, g, params: dict.fromkeys(params, rho),
    "adaptive": _adaptive,
}


def _project(shape: _Shape, numbers: dict, params):
    if not shape.project:
        return params
    layer = {name: params[name] for name in ("W1", "b1") if name in params}
    norm, radius = _norm(layer.values()), numbers["radius"].astype(params["W1"].dtype)
    scale = jnp.where(norm > radius, radius / jnp.where(norm > 0, norm, 1), 1)
    return params | {name: scale * value for name, value in layer.items()}


def _norm(arrays):
    return jnp.sqrt(sum(jnp.vdot(a, a) for a in arrays))


def _layout(n: int, shape: _Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How an epoch's n draws fill steps × micro-batches × samples.

    Returns the draw in each slot (0 where empty), its weight in its micro-batch's mean, and each
    micro-batch's share of its batch.
    """
    batch = shape.batch or n
    m = shape.micro_batch or batch
    steps, parts = -(-n // batch), -(-batch // m)
    within = np.arange(parts * m).reshape(parts, m)
    draw = np.arange(steps)[:, None, None] * batch + within
    used = (within < batch) & (draw < n)
    size = used.sum(axis=2)
    mean = used / np.maximum(size, 1)[:, :, None]
    share = size / size.sum(axis=1, keepdims=True)
    return np.where(used, draw, 0), mean, share
