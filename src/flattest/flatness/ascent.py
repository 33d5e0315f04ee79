"""The largest loss in a ball around θ, from below: what ascent finds in so many steps."""

from collections.abc import Iterable, Iterator

import numpy as np

from flattest.curvature.operator import Operator
from flattest.problem.randomness import generator


def rise(op: Operator, rho: float, steps: int, seed: int, scale: np.ndarray | None = None) -> float:
    """A lower bound of max { L(θ + s ⊙ ε) − L(θ) : ‖ε‖ ≤ ρ }, s being `scale` (1 where None).

    From a start on the sphere ε ← ρ s ⊙ ∇L / ‖s ⊙ ∇L‖, the maximizer of what is linear at ε: where
    L is convex it never falls. Counted is the best of all points on the way. Starts: the gradient
    at θ, unless it is 0, and a random direction, which does not depend on θ, so that rescalings
    that leave s ⊙ ∇L as it is leave the number as it is.
    """
    theta = op.point()
    s = np.ones(op.size) if scale is None else scale
    before = op.loss_at(theta)
    reached = [op.loss_at(theta + s * e) for e in _path(op, theta, s, rho, steps, seed)]
    return max([0.0, *(value - before for value in reached if np.isfinite(value))])


def _path(
    op: Operator, theta: np.ndarray, s: np.ndarray, rho: float, steps: int, seed: int
) -> Iterator[np.ndarray]:
    for start in _starts(s * op.gradient_at(theta), seed):
        epsilon = rho * start
        for _ in range(steps):
            yield epsilon
            slope = s * op.gradient_at(theta + s * epsilon)
            if not (0 < (size := np.linalg.norm(slope)) < np.inf):
                break
            epsilon = rho * slope / size
        yield epsilon


def _starts(slope: np.ndarray, seed: int) -> Iterable[np.ndarray]:
    drawn = generator(seed, "league/ascent").normal(size=len(slope))
    given = [slope, drawn] if slope.any() else [drawn]
    return [direction / np.linalg.norm(direction) for direction in given]
