"""Whether JAX's derivatives of a function are those of its values: users' code can take a part
for a constant (`stop_gradient`), give it a derivative of its own (`custom_jvp`, `custom_vjp`) or
compute it in fewer digits.

Held to differences along random directions, at weights a little off the function's own: where a
unit is exactly at a kink differences see both sides, and derivatives one. On both sides of its own:
a unit close to a kink is on for one of them."""

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from flattest.curvature.inputs import attempt
from flattest.curvature.loss_checks import beside, wrong_by
from flattest.curvature.operator import Operator
from flattest.errors import FlattestError
from flattest.problem.randomness import generator

# The first does for most functions; kinks ask for small steps.
_STEPS = (1e-6, 1e-7, 1e-5, 1e-8, 1e-4, 1e-9)
_WRONG = (
    "JAX's {} derivatives of this function are wrong (they are not those of its values): a part of "
    "it is taken for a constant or has a derivative of its own (stop_gradient, custom_jvp, "
    "custom_vjp); give what is not trained as a constant that the function closes over."
)
_LOSS_IS_WRONG = (
    "JAX's second derivatives of this loss in the outputs are wrong (they are off the differences "
    "of its first by {:.2g} of their size): a part of it is taken for a constant or has a "
    "derivative of its own (stop_gradient, custom_jvp, custom_vjp); write it without these."
)


def check_digits(jaxpr: Callable[[], Any]) -> None:
    """Raises a sentence where float64 becomes a type of fewer digits on the way to the outputs."""
    for equation in _equations(jaxpr().jaxpr):
        types = [
            [v.aval.dtype for v in side if hasattr(v.aval, "dtype")]
            for side in (equation.invars, equation.outvars)
        ]
        fewer = [t for t in types[1] if jnp.issubdtype(t, jnp.floating) and t != jnp.float64]
        if fewer and jnp.float64 in types[0]:
            raise FlattestError(
                f"The function computes in {fewer[0]} ({equation.primitive.name}), and ∇²L is "
                "taken in float64: leave dtype out of its layers, and casts."
            )


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Those of a jaxpr, and of the jaxprs in them."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, list | tuple) else [value]:
                if hasattr(inner := getattr(inner, "jaxpr", inner), "eqns"):
                    yield from _equations(inner)


def check_first_derivatives(op: Operator) -> None:
    """∇L along a direction against differences of L."""
    near, v = _near(op)
    for at in near:
        _check_slope(op, at, v)


def _check_slope(op: Operator, at: np.ndarray, v: np.ndarray) -> None:
    gradient = attempt("The function cannot be differentiated", op.gradient_at, at)
    parts, loss = gradient * v, op.loss_at(at)
    largest = np.abs(parts).max(initial=0.0) or 1.0  # squares of 1e-170 are 0
    allowed = largest * np.linalg.norm(parts / largest) + 1e-3 * abs(loss)

    def missed(step: float) -> float:
        slope = (op.loss_at(at + step * v) - op.loss_at(at - step * v)) / (2 * step)
        return abs(slope - parts.sum()) / (allowed or 1.0)

    if not any(missed(step) < 1e-4 for step in _STEPS):
        raise FlattestError(_WRONG.format("first"))


def check_second_derivatives(op: Operator, products_at: Callable[..., np.ndarray]) -> None:
    """∇²L v against differences of ∇L; `products_at(θ, rows)` are those with ∇²L."""
    near, v = _near(op)
    for at in near:
        Hv = attempt("The function cannot be differentiated twice", products_at, at, v[None])[0]
        if not _are_differences(Hv, op.gradient_at, at, v):
            raise FlattestError(_WRONG.format("second"))


def check_loss(
    f: np.ndarray,
    slopes: Callable[[np.ndarray], Any],
    products: Callable[[np.ndarray, np.ndarray], Any],
) -> None:
    """∇²_f ℓ z against differences of ∇_f ℓ, both by sample, at outputs a little off f, (n, …): a
    Gauss–Newton part is made of ∇²_f ℓ, whatever ∇²L is."""
    near = beside(f)
    twice = "The loss cannot be differentiated twice"
    found = np.asarray(attempt(twice, products, near.f, near.direction))
    if wrong := wrong_by(found, lambda at: np.asarray(slopes(at)), near):
        raise FlattestError(_LOSS_IS_WRONG.format(wrong))


def _are_differences(
    product: np.ndarray, gradient: Callable[[np.ndarray], np.ndarray], at: np.ndarray, v: np.ndarray
) -> bool:
    """Whether the second derivative times v is what differences of the first say."""

    def missed(step: float) -> float:
        ahead, behind = (gradient(at + s * v) for s in (step, -step))
        allowed = max(np.linalg.norm(product), 1e-4 * np.linalg.norm(ahead))
        return float(np.linalg.norm((ahead - behind) / (2 * step) - product) / (allowed or 1.0))

    return any(missed(step) < 1e-4 for step in _STEPS)


def _near(op: Operator) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Two points near θ, which is between them, and a direction."""
    rng, point = generator(0, "derivatives"), op.point()
    sizes = [np.abs(part).mean() for part in op.by_name(point).values() for _ in range(part.size)]
    scale = np.where(np.array(sizes) > 0, sizes, min([s for s in sizes if s > 0], default=1.0))
    v, away = scale * rng.normal(size=(2, op.size))
    return (point + 1e-3 * away, point - 1e-3 * away), v
