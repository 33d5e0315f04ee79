"""Section 2: what Tr ∇²L measures."""

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.special import roots_genlaguerre

import flattest as ft
from flattest.evidence import Verdict, equal
from flattest.ledger.claim import claim, worst
from flattest.papers.wen2023.claims.instances import small_interpolators
from flattest.problem.models import Params
from flattest.problem.randomness import generator

SIGMA = 1e-4


def losses(model: ft.MLP, params: Params, data: ft.Dataset, steps: np.ndarray) -> np.ndarray:
    """L(θ + step) for each row of `steps`, whose columns are the parameters one after another."""

    def L(step):
        f = model.apply(unflatten(theta + step), data.x, data.x)
        return ((f - data.y) ** 2).mean()

    theta, unflatten = ravel_pytree(params)
    return np.asarray(jax.jit(jax.vmap(L))(steps))


def mean_increment(model: ft.MLP, params: Params, data: ft.Dataset, sigma: float) -> float:
    """E L(θ + σξ) − L(θ) for ξ ~ N(0, I_D), up to a relative O(σ²).

    ξ = ru with r² ~ χ²_D and u uniform on the sphere: the mean over r by Gauss's quadrature, that
    over u by an orthonormal frame and its negative, which is exact for polynomials of degree 3.
    """
    D = sum(np.size(value) for value in params.values())
    halves, weights = roots_genlaguerre(2, D / 2 - 1)
    frame = np.linalg.qr(generator(0, "claims/frame", D).normal(size=(D, D)))[0]
    u = sigma * np.concatenate([frame, -frame])
    steps = [r * u for r in np.sqrt(2 * halves)]
    *found, here = losses(model, params, data, np.concatenate([*steps, np.zeros((1, D))]))
    means = np.reshape(found, (2, -1)).mean(axis=1)
    return float(weights @ means / weights.sum() - here)


@claim(
    "wen2023/section-2/gaussian",
    "Tr ∇²L is the expected increment of the loss under a Gaussian perturbation, up to the factor "
    "σ²/2 and terms of higher order.",
    source="Section 2, Sharpness",
    evidence="identity",
)
def gaussian(half=0.5) -> Verdict:
    note = f"(E L(θ + σξ) − L(θ))/σ² against Tr ∇²L/2, six architectures, σ = {SIGMA:g}"
    return worst(
        equal(mean_increment(*case, SIGMA) / SIGMA**2, half * float(ft.trace(*case)), 1e-4, note)
        for case in small_interpolators()
    )
