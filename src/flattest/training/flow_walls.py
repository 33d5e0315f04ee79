"""The flow with one-way walls, from event to event: the limit δ → 0 of the flow that sees kinks.

Where h_ij, the pre-activation of neuron j at point i, crosses 0 upwards, S jumps up by
w_i a_j² ‖x̃_i‖²; smoothed over a width δ that is a slope as steep as 1/δ. So in the limit h_ij falls
through 0 freely, and where it comes to 0 from below it stays there while it is pushed on: a wall,
with a multiplier. With N the set of those at their walls,

    v = argmin ‖v + ∇S‖²  over  J v = 0 and ∇h_k · v ≤ 0 for k in N
      = −P∇S − Σ_k μ_k P∇h_k,   μ ≥ 0, and μ_k = 0 where ∇h_k · v < 0.

Between events dS/dt = −‖v‖², and every crossing is downwards: S never rises, no neuron is switched
on at a point where it is off, and there are finitely many crossings. Between events the pattern is
fixed and the pair of `flow_engine` has its order, 3. An event ends its step: a pre-activation
reaches 0, or a multiplier does. Those at their walls are held at −ε, ε = 10⁻¹⁰ of the largest
target, so that signs tell the pattern, and what is done next depends on θ alone.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from flattest.errors import FlattestError
from flattest.problem.losses import INTERPOLATION
from flattest.problem.models import MLP
from flattest.training.manifold import (
    NEWTON_STEPS,
    NOWHERE,
    Attempt,
    Manifold,
    Point,
    RankDeficient,
    TwoLayers,
    norm,
)
from flattest.training.state import Problem

_BISECTIONS = 50
# Multipliers and speeds below this share of the largest are rounding.
_ROUNDING = 1e-10


class Walls(NamedTuple):
    """Some pre-activations, by point and neuron."""

    point: np.ndarray
    neuron: np.ndarray

    @classmethod
    def where(cls, mask: np.ndarray) -> "Walls":
        return cls(*np.nonzero(mask))

    def at(self, chosen: np.ndarray) -> "Walls":
        return Walls(self.point[chosen], self.neuron[chosen])

    def mask(self, shape: tuple[int, ...]) -> np.ndarray:
        found = np.zeros(shape, bool)
        found[self] = True
        return found


@dataclass(eq=False)
class InPattern(TwoLayers):
    """Two ReLU layers in which neuron j is on at point i where `on` says so: σ(h) = on ⊙ h.

    guess: walls that are probably pushed against, a start for finding those that are.
    """

    on: np.ndarray
    epsilon: float
    bases: "Bases"
    guess: Walls

    @cached_property
    def r(self):
        return np.where(self.on, self.h, 0.0)

    @cached_property
    def delta(self):
        return self.a * self.on

    @cached_property
    def pattern(self):
        return self.on

    @cached_property
    def _slope(self):
        return self.on.astype(float)

    @cached_property
    def held(self) -> Walls:
        """The walls that are pushed against: those with μ > 0."""
        return self._pushed[0]

    @cached_property
    def multipliers(self) -> np.ndarray:
        """μ > 0 of those held."""
        return self._pushed[1]

    @cached_property
    def velocity(self) -> np.ndarray:
        return self.along(self.held)[0]

    def along(self, walls: Walls) -> tuple[np.ndarray, np.ndarray]:
        """The tangent vector nearest to −∇S that moves none of the walls, and its multipliers."""
        free = self._tangent(-self.gradient)
        if not len(walls.point):
            return free, np.zeros(0)
        mu = self.stiffness(walls).solve(self.speeds(free, walls))
        return free - self._tangent(self._pull_walls(mu, walls)), mu

    def speeds(self, v: np.ndarray, walls: Walls) -> np.ndarray:
        """∇h_k · v."""
        V = v[: self.W.size].reshape(self.W.shape)
        return np.vecdot(self.x[walls.point], V[walls.neuron])

    def moved(self, theta: np.ndarray) -> "InPattern":
        """The network θ in this one's pattern."""
        return replace(self, theta=theta, guess=self.held)

    def signed(self) -> "InPattern":
        """The same network in the pattern of its own signs."""
        return replace(self, on=self.h > 0)

    def onto(self, target: np.ndarray, walls: Walls) -> "InPattern | None":
        """By Newton's method, with outputs on their targets and the walls at −ε; in its pattern."""
        point, outputs = self, 0.1 * INTERPOLATION * np.abs(target).max()
        for _ in range(NEWTON_STEPS):
            missed, short = target - point.f, -self.epsilon - point.h[walls]
            if not np.isfinite(missed).all():
                return None
            if np.abs(missed).max() <= outputs and (np.abs(short) <= 0.1 * self.epsilon).all():
                return point
            change = point.pull(point.solve(missed))
            if len(walls.point):
                mu = point.stiffness(walls).solve(short - point.speeds(change, walls))
                change = change + point._tangent(point._pull_walls(mu, walls))
            point = replace(point, theta=point.theta + change)
        return None

    @cached_property
    def _pushed(self) -> tuple[Walls, np.ndarray]:
        near = Walls.where(~self.on & (self.h >= -2 * self.epsilon))
        if not len(near.point):
            return near, np.zeros(0)
        speeds = self.speeds(self._tangent(-self.gradient), near)
        guessed = self.guess.mask(self.h.shape)[near]
        # Who is at a wall where an epoch begins was pushed there, and mostly still is.
        start = guessed if guessed.any() else np.ones_like(guessed)
        mu = complementary(self.stiffness(near), speeds, start)
        return near.at(mu > 0), mu[mu > 0]

    def _tangent(self, v: np.ndarray) -> np.ndarray:
        """P v."""
        return v - self.pull(self.solve(self.push(v)))

    def _pull_walls(self, c: np.ndarray, walls: Walls) -> np.ndarray:
        """Σ_k c_k ∇h_k."""
        pulled = np.zeros_like(self.theta)
        by_W = pulled[: self.W.size].reshape(self.W.shape)
        np.add.at(by_W, walls.neuron, c[:, None] * self.x[walls.point])
        return pulled

    def stiffness(self, walls: Walls) -> "Stiffness":
        return Stiffness(self, walls)


class Basis(NamedTuple):
    """An orthonormal basis of the ∇h_k of some walls.

    ∇h_k is an input, in the row of W that is its neuron's. So D = (∇h_k · ∇h_l) has a block
    L_j L_jᵀ for each neuron j, and the rows u_k of L_j⁻¹X̃ are the basis. at: a wall's neuron among
    those that have walls, and its place there. images: the inputs' components x̃_i · u_k. All blocks
    are filled up to one size with unit vectors.
    """

    at: tuple[np.ndarray, np.ndarray]
    inverse: np.ndarray
    images: np.ndarray

    @classmethod
    def of(cls, walls: Walls, x: np.ndarray, gram_x: np.ndarray) -> "Basis":
        neurons, block, sizes = np.unique(walls.neuron, return_inverse=True, return_counts=True)
        order = np.argsort(block, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        points = np.full((len(neurons), sizes.max()), -1)
        points[block, place] = walls.point
        filled = points < 0
        inner = gram_x[points[:, :, None], points[:, None, :]]
        inner[filled[:, :, None] | filled[:, None, :]] = 0.0
        inner += filled[:, None, :] * np.eye(sizes.max())
        inverse = np.linalg.inv(np.linalg.cholesky(inner))
        rows = (inverse @ np.where(filled[:, :, None], 0.0, x[points]))[block, place]
        return cls((block, place), inverse, x @ rows.T)

    def components(self, c: np.ndarray) -> np.ndarray:
        """L⁻¹ c."""
        return self._by_neuron(self.inverse, c)

    def multipliers(self, c: np.ndarray) -> np.ndarray:
        """L⁻ᵀ c."""
        return self._by_neuron(self.inverse.transpose(0, 2, 1), c)

    def _by_neuron(self, blocks: np.ndarray, c: np.ndarray) -> np.ndarray:
        padded = np.zeros(self.inverse.shape[:2])
        padded[self.at] = c
        return (blocks @ padded[:, :, None])[:, :, 0][self.at]


class Bases:
    """The bases of sets of walls; the last are kept, since a step asks for the same many times."""

    def __init__(self) -> None:
        self._kept: dict[tuple[bytes, bytes], Basis] = {}

    def of(self, walls: Walls, x: np.ndarray, gram_x: np.ndarray) -> Basis:
        key = walls.point.tobytes(), walls.neuron.tobytes()
        if key not in self._kept:
            self._kept = dict([*self._kept.items()][-3:])
            self._kept[key] = Basis.of(walls, x, gram_x)
        return self._kept[key]


class Stiffness(NamedTuple):
    """H = (∇h_k · P∇h_l) over some walls k, l.

    With D = L Lᵀ their inner products, U the rows of their `Basis` and C = JUᵀ it is
    L (I − CᵀK⁻¹C) Lᵀ, and by Woodbury's formula

        H⁻¹ = L⁻ᵀ (I + Cᵀ (K − C Cᵀ)⁻¹ C) L⁻¹,

    which takes some n² operations a wall. K − C Cᵀ is the Gram matrix of what is left of the ∇f_i
    where no wall may move.
    """

    point: InPattern
    walls: Walls

    def __matmul__(self, mu: np.ndarray) -> np.ndarray:
        pulled = self.point._pull_walls(mu, self.walls)
        return self.point.speeds(self.point._tangent(pulled), self.walls)

    def restricted(self, chosen: np.ndarray) -> "Stiffness":
        """H of some of the walls."""
        return Stiffness(self.point, self.walls.at(chosen))

    def solve(self, b: np.ndarray) -> np.ndarray:
        """H⁻¹ b."""
        try:
            basis = self.point.bases.of(self.walls, self.point.x, self.point.gram_x)
            C = self.point.delta[:, self.walls.neuron] * basis.images
            left = cho_factor(self.point.gram - C @ C.T)
            components = basis.components(b)
            return basis.multipliers(components + C.T @ cho_solve(left, C @ components))
        except (LinAlgError, ValueError) as error:
            raise RankDeficient from error


def complementary(H: Stiffness, b: np.ndarray, start: np.ndarray) -> np.ndarray:
    """μ ≥ 0 with b − Hμ ≤ 0, and = 0 where μ > 0: the least of ½ μᵀHμ − b·μ over μ ≥ 0.

    By Lawson and Hanson's method (1974, chapter 23), from the set `start`, which is made smaller
    until its own solution is positive, or else from that where b > 0. H may be singular: who
    depends on those that are held does not move, and is not added.
    """
    tolerance = _ROUNDING * max(np.abs(b).max(), 1e-300)
    mu, passive = _positive(H, b, start)
    if not passive.any():
        mu, passive = _positive(H, b, b > 0)
    for _ in range(10 * len(b)):
        rest = np.where(passive, -np.inf, b - H @ mu)
        if rest.max() <= tolerance:
            return mu
        passive[np.argmax(rest)] = True
        while True:
            trial = _restricted(H, b, passive)
            negative = passive & (trial <= 0)
            if not negative.any():
                mu = trial
                break
            share = (mu[negative] / (mu[negative] - trial[negative])).min()
            mu = mu + share * (trial - mu)
            passive &= mu > 1e-14 * max(mu.max(), 1e-300)
            mu[~passive] = 0
    return mu


def _positive(H: Stiffness, b: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A solution of Hμ = b on a part of `start` that is positive there, and that part; nobody where
    those of `start` depend on one another."""
    passive = start.copy()
    while passive.any():
        try:
            trial = _restricted(H, b, passive)
        except RankDeficient:
            break
        if (trial[passive] > 0).all():
            return trial, passive
        passive &= trial > 0
    return np.zeros_like(b), np.zeros_like(passive)


def _restricted(H: Stiffness, b: np.ndarray, passive: np.ndarray) -> np.ndarray:
    """The solution of Hμ = b on a set of indices, 0 elsewhere."""
    mu = np.zeros_like(b)
    mu[passive] = H.restricted(passive).solve(b[passive])
    return mu


class Trial(NamedTuple):
    """A step in one pattern: where it leads before Newton's correction, its speed there, the
    multipliers there, and its estimated error."""

    ahead: InPattern
    velocity: np.ndarray
    multipliers: np.ndarray
    error: float


def attempt(point: InPattern, h: float) -> Trial:
    """Bogacki and Shampine's pair 3(2) with the pattern and the walls of its start."""
    walls, theta, k1 = point.held, point.theta, point.velocity
    k2, _ = point.moved(theta + h / 2 * k1).along(walls)
    k3, _ = point.moved(theta + 3 * h / 4 * k2).along(walls)
    ahead = point.moved(theta + h / 9 * (2 * k1 + 3 * k2 + 4 * k3))
    k4, mu = ahead.along(walls)
    return Trial(ahead, k4, mu, h * norm(-5 / 72 * k1 + k2 / 12 + k3 / 9 - k4 / 8))


def first_event(point: InPattern, trial: Trial, h: float) -> tuple[float, Walls]:
    """When the first event of a step happens, as a share of it, and who reaches 0 then; 1 where
    none happens. Pre-activations by Hermite's cubic, multipliers by their chord."""
    free = ~point.held.mask(point.h.shape)
    crossing = Walls.where(free & (point.on != (trial.ahead.h > 0)))
    share, nobody = 1.0, Walls.where(np.zeros((1, 1), bool))
    falling = trial.multipliers < 0
    if falling.any():
        mu0, mu1 = point.multipliers[falling], trial.multipliers[falling]
        share = min(1.0, 1.001 * float((mu0 / (mu0 - mu1)).min()))
    if not len(crossing.point):
        return share, nobody
    roots = _roots(
        point.h[crossing],
        trial.ahead.h[crossing],
        h * point.speeds(point.velocity, crossing),
        h * point.speeds(trial.velocity, crossing),
    )
    first = float(roots.min())
    return (first, crossing.at(roots <= first)) if first <= share else (share, nobody)


def _roots(h0, h1, d0, d1) -> np.ndarray:
    """Where in [0, 1] the cubics with these ends and slopes change sign, by bisection."""
    low, high, sign = np.zeros_like(h0), np.ones_like(h0), np.where(h1 > 0, 1.0, -1.0)
    for _ in range(_BISECTIONS):
        s = (low + high) / 2
        after = sign * _cubic(s, h0, h1, d0, d1) > 0
        low, high = np.where(after, low, s), np.where(after, s, high)
    return (low + high) / 2


def between(point: InPattern, trial: Trial, h: float, share: float) -> np.ndarray:
    """θ after a share of a step: Hermite's cubic, whose order is the pair's, 3 (Hairer, Nørsett and
    Wanner 1993, II.6). Pre-activations are linear in W, so that those of `first_event` are its."""
    ends = point.theta, trial.ahead.theta
    return _cubic(share, *ends, h * point.velocity, h * trial.velocity)


def _cubic(s, start, end, slope, last_slope):
    """Hermite's cubic with these ends and slopes, at s in [0, 1]."""
    left = (1 + 2 * s) * start + s * slope
    return (1 - s) ** 2 * left + s**2 * ((3 - 2 * s) * end + (s - 1) * last_slope)


def landed(target: np.ndarray, ahead: InPattern, walls: Walls) -> InPattern | None:
    """The end of a step on M with these walls at −ε, in its own pattern; nobody is switched on."""
    mask = walls.mask(ahead.h.shape)
    while True:
        end = ahead.onto(target, Walls.where(mask))
        if end is None:
            return None
        raised = ~ahead.on & (end.h > 0)
        if not raised.any():
            return end.signed()
        mask |= raised


def step(where: Manifold, point: Point, h: float, allowed: float) -> Attempt:
    """A step of length h at most, cut at its first event."""
    point = cast(InPattern, point)
    try:
        trial = attempt(point, h)
        share = trial.error / allowed
        if not share <= 1:
            return Attempt(None, h, trial.error, share)
        cut, reaching = first_event(point, trial, h)
        ahead = trial.ahead if cut == 1 else point.moved(between(point, trial, h, cut))
        both = point.held.mask(point.h.shape) | reaching.mask(point.h.shape)
        end = landed(where.target, ahead, Walls.where(both))
        return Attempt(end, cut * h, trial.error, np.inf if end is None else share)
    except RankDeficient:
        return NOWHERE


def _check_walls_differ(problem: Problem) -> None:
    """Without bias x and −x change sign together, one upwards: the trace does not jump there, and
    smoothed it has a dip, so that the wall is not one-way."""
    if cast(MLP, problem.model).bias:
        return
    x = problem.data.x / np.linalg.norm(problem.data.x, axis=1, keepdims=True)
    if (np.triu(np.abs(x @ x.T), 1) > 1 - _ROUNDING).any():
        raise FlattestError(
            "With walls and without bias no two inputs may lie on one line through 0, as x and −x "
            "do; give the network a bias, or use kinks='seen'."
        )


def manifold(where: Manifold, problem: Problem) -> Manifold:
    """M with the points of the flow with walls, from that of the flow that sees no kinks."""
    _check_walls_differ(problem)
    epsilon = INTERPOLATION * float(np.abs(where.target).max())
    nobody = Walls.where(np.zeros((1, 1), bool))
    bases = Bases()

    def at(theta: np.ndarray) -> InPattern:
        plain = cast(TwoLayers, where.at(theta))
        settings = plain.x, plain.gram_x, plain.weight, plain.sigma, plain.seen, plain.offset
        return InPattern(theta, *settings, plain.h > 0, epsilon, bases, nobody)

    return where._replace(at=at)
