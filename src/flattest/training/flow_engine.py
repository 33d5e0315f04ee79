"""The engine of flows: steps of a Runge–Kutta pair with Newton's correction after each.

Bogacki and Shampine's pair 3(2), on the field θ ↦ −P(θ)∇S(θ), which off M is tangent to the level
set of f through θ. A step misses M by no more than its own error, so that going back by Newton's
method keeps the order, 3 (Hairer, Lubich and Wanner 2006, IV.4). At a kink crossed inside of a step
the order is 1; the estimated error still bounds the step. What happens in an epoch depends on θ at
its start only: any way to cut a phase gives the same bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flattest.errors import FlattestError
from flattest.training import flow_walls
from flattest.training.flows import Flow
from flattest.training.manifold import (
    NOWHERE,
    Attempt,
    Manifold,
    Point,
    RankDeficient,
    manifold,
    norm,
)
from flattest.training.state import Halt, Problem, State

# Steps below this share of an epoch are a flow that stalls.
_LEAST = 1e-9
# So many events in a row, all but at once, are a flow that stalls, too.
_IDLE = 1000
_DEPENDENT = (
    "the gradients of its outputs are linearly dependent, so that there is no tangent space. Those "
    "of equal points are; and without a bias those of more than d pairs x, −x, since f(x) − f(−x) "
    "is linear in x"
)

# Of every step that crosses kinks: when it ended, how many it crossed, and what S rose by.
CROSSINGS = ("crossing_time", "crossing_count", "crossing_jump")
Row = tuple[float, float, float]

# What a flow logs, before its first step.
NOTHING_YET = {
    **dict.fromkeys(("time", "flow_steps", "crossings", "jump_up", "rise_between"), 0.0),
    "local_error": 0.0,
    "stationarity": float("nan"),
}


@dataclass(frozen=True, eq=False)
class Step:
    """An accepted step: where it ended, and what it did to S.

    crossings: pre-activations whose sign changed (NaN where the network's are not known).
    """

    start: Point
    end: Point
    h: float
    error: float

    @property
    def crossings(self) -> float:
        if self.start.pattern is None or self.end.pattern is None:
            return float("nan")
        return float((self.start.pattern != self.end.pattern).sum())

    @property
    def rise(self) -> float:
        return self.end.sharpness - self.start.sharpness


def interpolators(problem: Problem, phase: Flow) -> Manifold:
    """M, its points moving as the phase sees kinks."""
    found = manifold(problem, phase)
    return flow_walls.manifold(found, problem) if phase.kinks == "walls" else found


def begin(problem: Problem, phase: Flow, state: State) -> Point:
    """The interpolator that the flow starts from; a sentence where there is none."""
    return _start(interpolators(problem, phase), state)


def _start(where: Manifold, state: State) -> Point:
    if not np.isfinite(where.target).all():
        raise FlattestError("The loss has no minimizer to flow along; give it label smoothing.")
    start = where.at(where.flat(state.params))
    missed = float(np.abs(start.f - where.target).max())
    try:
        found = where.onto(start)
    except RankDeficient:
        raise FlattestError(f"The flow cannot start from this network: {_DEPENDENT}.") from None
    far = found is None or norm(found.theta - start.theta) > 0.1 * norm(start.theta)
    if found is None or far:
        raise FlattestError(
            f"The flow starts from an interpolator, and this network misses a target by "
            f"{missed:.3g}: train it first, say by ft.gd(0.01, epochs=…, stop_loss=1e-8)."
        )
    return found


def advance(problem: Problem, phase: Flow, state: State, epochs: int) -> State:
    """The state after `epochs` more epochs of the flow, or where it ended."""
    where = interpolators(problem, phase)
    while epochs > 0 and state.halt is None:
        # Every epoch begins from θ by name, as the first after a cut does: a point knows more (the
        # walls it was pushed against), and where multipliers are not unique that moves the bits.
        start = _start(where, state)
        point, tally, crossed, halt = _epoch(where, phase, start, dict(state.tally))
        state = replace(
            state,
            params=where.named(point.theta),
            epoch=state.epoch + 1,
            step=state.step + 1,
            phase_epoch=state.phase_epoch + 1,
            tally=tally,
            events=_with_rows(state.events, crossed),
            halt=halt,
        )
        epochs -= 1
    return state


def _epoch(
    where: Manifold, phase: Flow, point: Point, tally: dict[str, float]
) -> tuple[Point, dict[str, float], list[Row], Halt | None]:
    """One epoch of the flow, what was counted, its crossings, and why it ended, if it did."""
    length = phase.time / phase.epochs
    crossed: list[Row] = []
    for step in steps(where, phase, point, length):
        if step is None:
            return point, tally, crossed, "stalled"
        tally = _counted(tally, step)
        if step.crossings > 0:
            crossed.append((tally["time"], step.crossings, step.rise))
        point = step.end
        if point.stationarity <= phase.stationary:
            return point, tally, crossed, "stopped"
    return point, tally, crossed, None


def _with_rows(events: Mapping[str, np.ndarray], crossed: list[Row]) -> dict[str, np.ndarray]:
    columns = np.array(crossed).reshape(-1, len(CROSSINGS)).T
    return {
        name: np.concatenate([events.get(name, np.zeros(0)), column])
        for name, column in zip(CROSSINGS, columns, strict=True)
    }


def _counted(tally: dict[str, float], step: Step) -> dict[str, float]:
    """Crossings, the sum of what S rose by in steps that crossed a kink, the most it rose by in one
    that crossed none, and the sum of estimated errors."""
    crossed = step.crossings > 0
    up = max(step.rise, 0.0)
    return {
        "time": tally["time"] + step.h,
        "flow_steps": tally["flow_steps"] + 1,
        "crossings": tally["crossings"] + step.crossings,
        "jump_up": tally["jump_up"] + (up if crossed else 0.0),
        "rise_between": max(tally["rise_between"], 0.0 if crossed else up),
        "local_error": tally["local_error"] + step.error,
        "stationarity": step.end.stationarity,
    }


def steps(where: Manifold, phase: Flow, point: Point, length: float):
    """The accepted steps over a stretch of time; None in the place of the last where the flow
    stalls: where no step is small enough, the gradients become dependent, or events do not end."""
    step = flow_walls.step if phase.kinks == "walls" else _step
    done, h, idle = 0.0, min(length, _first_step(phase, point)), 0
    while done < length:
        h = min(h, length - done)
        if (h < _LEAST * length and length - done > 2 * h) or idle > _IDLE:
            yield None
            return
        found = step(where, point, h, phase.tolerance * norm(point.theta))
        if found.end is not None:
            yield Step(point, found.end, found.h, found.error)
            # The rest of an epoch may be lost to rounding.
            done = length if found.h == length - done else done + found.h
            idle = idle + 1 if found.h < _LEAST * length else 0
            point = found.end
        h *= min(4.0, max(0.2, 0.9 * (found.share + 1e-12) ** (-1 / 3)))


def _first_step(phase: Flow, point: Point) -> float:
    """A step that moves θ by the cube root of the tolerance."""
    speed = norm(point.velocity)
    moved = phase.tolerance ** (1 / 3) * norm(point.theta)
    return 0.3 * moved / speed if speed > 0 else np.inf


def _step(where: Manifold, point: Point, h: float, allowed: float) -> Attempt:
    """A step of length h, wherever its kinks are."""
    try:
        k1, theta = point.velocity, point.theta
        k2 = where.at(theta + h / 2 * k1).velocity
        k3 = where.at(theta + 3 * h / 4 * k2).velocity
        ahead = where.at(theta + h / 9 * (2 * k1 + 3 * k2 + 4 * k3))
        error = h * norm(-5 / 72 * k1 + k2 / 12 + k3 / 9 - ahead.velocity / 8)
        if not error <= allowed:
            return Attempt(None, h, error, error / allowed if np.isfinite(error) else np.inf)
        end = where.onto(ahead)
        if end is None or not np.isfinite(end.stationarity):
            return NOWHERE
    except RankDeficient:
        return NOWHERE
    return Attempt(end, h, error, error / allowed)
