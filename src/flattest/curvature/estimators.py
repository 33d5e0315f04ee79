"""Unbiased estimates of Tr ∇²L from products, with standard errors and a stopping rule."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flattest.curvature.operator import ROWS_AT_ONCE, Operator
from flattest.curvature.result import Quantity
from flattest.errors import FlattestError
from flattest.problem.data import standard_error
from flattest.problem.randomness import generator

# Maps rows v to rows Av.
Matmat = Callable[[np.ndarray], np.ndarray]

_FEWEST_PROBES = 8


@dataclass(frozen=True)
class Probes:
    """Samples of zᵀAz and the mean of z ⊙ Az, whose entries estimate A's diagonal."""

    samples: np.ndarray
    diagonal: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.samples.mean())

    @property
    def stderr(self) -> float:
        return standard_error(self.samples)


def hutchinson(
    op: Operator, rtol: float = 1e-2, most_products: int = 4096, seed: int = 0
) -> Quantity:
    """An unbiased estimate of Tr ∇²L from zᵀ∇²L z with random signs z (Hutchinson 1990).

    Stops at a standard error ≤ rtol · |trace| or after `most_products` products with ∇²L.
    """
    rng = generator(seed, "sharpness/hutchinson")
    found = random_signs(op.matmat, op.size, rtol, most_products, rng)
    per_layer = {name: float(np.sum(part)) for name, part in op.by_name(found.diagonal).items()}
    route = f"hutchinson ({len(found.samples)} products)"
    return Quantity(found.mean, route, found.stderr, per_layer)


def random_signs(
    products: Matmat,
    size: int,
    rtol: float,
    most_products: int,
    rng: np.random.Generator,
    offset: float = 0.0,
) -> Probes:
    """zᵀAz with random signs z, until its standard error is ≤ rtol · |offset + mean|.

    `offset` is what the caller knows of the trace already.
    """
    _check_budget(rtol, most_products)
    diagonal, samples = np.zeros(size), np.empty(0)
    while len(samples) < most_products:
        z = rng.choice([-1.0, 1.0], (min(ROWS_AT_ONCE, most_products - len(samples)), size))
        terms = z * products(z)
        diagonal += terms.sum(axis=0)
        samples = np.append(samples, terms.sum(axis=1))
        if standard_error(samples) <= rtol * abs(offset + samples.mean()):
            break
    return Probes(samples, diagonal / len(samples))


def _check_budget(rtol: float, most_products: int) -> None:
    if not rtol >= 0 or not most_products >= 2:
        raise FlattestError(
            f"An estimate needs rtol ≥ 0 and most_products ≥ 2, not {rtol!r} and {most_products!r}."
        )


def xtrace(op: Operator, rtol: float = 1e-2, most_products: int = 4096, seed: int = 0) -> Quantity:
    """An unbiased estimate of Tr ∇²L by XTrace (Epperly, Tropp, Webber 2024), which is far more
    accurate than Hutchinson's where a few eigenvalues dominate.

    Doubles the number of probes, drawn afresh, until the standard error is ≤ rtol · |trace| or
    the next round would exceed `most_products` products; where the probes find all of ∇²L's
    range the result is exact.
    """
    _check_budget(rtol, most_products)
    rng = generator(seed, "sharpness/xtrace")
    probes, spent = min(_FEWEST_PROBES, op.size), 0
    while True:
        estimates = exchangeable(op.matmat, op.size, probes, rng)
        spent += 2 * probes
        mean, stderr = float(estimates.mean()), standard_error(estimates)
        following = min(2 * probes, op.size)
        if stderr <= rtol * abs(mean) or probes == op.size or spent + 2 * following > most_products:
            return Quantity(mean, f"xtrace ({spent} products)", stderr)
        probes = following


def exchangeable(products: Matmat, size: int, probes: int, rng: np.random.Generator) -> np.ndarray:
    """The exchangeable estimates of XTrace (Epperly, Tropp, Webber 2024), one for each probe.

    Estimate i takes the trace on the range found by the other probes exactly, and that of the
    rest from probe i alone: 2 · probes products in all. Each estimate is unbiased. They share
    probes, so that for few of them the standard error of their mean comes out up to a third low.
    """
    omega = rng.normal(size=(probes, size))
    omega *= np.sqrt(size) / np.linalg.norm(omega, axis=1, keepdims=True)
    image = products(omega)
    Q, R = np.linalg.qr(image.T)
    Z = products(np.ascontiguousarray(Q.T)).T
    H = Q.T @ Z
    found = np.abs(np.diagonal(R))
    if probes >= size or found.min() <= 1e-12 * found.max():
        # Fewer independent images than probes: Q holds the whole range of A.
        return np.full(probes, np.trace(H))
    # s_i ⊥ all columns of R but the i-th, so Q(I − s_i s_iᵀ)Qᵀ projects on the others' range.
    S = np.linalg.inv(R).T
    S /= np.linalg.norm(S, axis=0)
    W = Q.T @ omega.T
    W -= S * _column_dots(S, W)
    rest, rest_image = omega.T - Q @ W, image.T - Z @ W
    # The direction of the rest is uniform on the sphere of a space of this dimension.
    dimension = size - probes + 1
    outside = dimension * _column_dots(rest, rest_image) / _column_dots(rest, rest)
    return np.trace(H) - _column_dots(S, H @ S) + outside


def _column_dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->j", a, b)
