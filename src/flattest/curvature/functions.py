"""∇²L of a JAX function of parameters and inputs with any number of outputs, by autodiff."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from flattest.curvature.diagonal import ROWS_AT_ONCE
from flattest.errors import FlattestError, first_line, unknown
from flattest.problem.data import Dataset
from flattest.problem.losses import LOSSES
from flattest.problem.losses import loss as flattest_loss

# Per-sample gradients held at once: 128 MB in float64, or those of one sample where that is more.
MOST_GRADIENT_ENTRIES = 2**24


@dataclass(eq=False)
class FunctionProblem:
    """L(θ) = (1/n) Σ ℓ(f_θ(x_i), y_i) with f = `function(leaves, x)`, θ the leaves by name."""

    function: Callable[[dict[str, Any], Any], Any]
    leaves: dict[str, jnp.ndarray]
    x: jnp.ndarray
    y: jnp.ndarray
    loss: Callable[[Any, Any], Any]

    def __post_init__(self):
        self.theta, self.unravel = ravel_pytree(self.leaves)

    @property
    def samples(self) -> int:
        return len(self.x)

    @property
    def size(self) -> int:
        return self.theta.size

    @cached_property
    def outputs(self) -> jnp.ndarray:
        """f, (n, outputs)."""
        return self._rows(self.function(self.leaves, self.x))

    @staticmethod
    def _rows(f):
        return f.reshape(len(f), -1)

    def mean_loss(self) -> float:
        return float(jnp.mean(jax.vmap(self.loss)(self.outputs, self.y)))

    def by_name(self, flat) -> dict[str, np.ndarray]:
        return {name: np.asarray(v) for name, v in self.unravel(jnp.asarray(flat)).items()}

    def gauss_newton_diagonal(self) -> dict[str, np.ndarray]:
        """(1/n) Σ_i Σ_c λ_ic (J_iᵀ v_ic)² with the eigenpairs λ, v of ∇²_f ℓ_i."""
        entries = self.size * self.outputs.shape[1]
        at_once = min(self.samples, max(1, MOST_GRADIENT_ENTRIES // entries))
        # The last chunk is filled up with samples of weight 0.
        order = np.arange(self.samples + -self.samples % at_once)
        counted = (order < self.samples).astype(float)
        rows = order % self.samples
        chunks = [
            a.reshape(-1, at_once, *a.shape[1:]) for a in (self.x[rows], self.y[rows], counted)
        ]
        return self.by_name(self._sum_of_squares(self.theta, chunks) / self.samples)

    # Compiled for each problem, so that nothing of it outlives it.
    @cached_property
    def _sum_of_squares(self) -> Callable:
        def of_sample(theta, x, y, counted):
            f, pullback = jax.vjp(
                lambda theta: self.function(self.unravel(theta), x[None]).reshape(-1), theta
            )
            hessian = jax.hessian(self.loss)(f, y)
            values, vectors = jnp.linalg.eigh(0.5 * (hessian + hessian.T))
            return counted * values @ jax.vmap(lambda v: pullback(v)[0])(vectors.T) ** 2

        def total(theta, chunks):
            def add(total, chunk):
                squares = jax.vmap(of_sample, in_axes=(None, 0, 0, 0))(theta, *chunk)
                return total + squares.sum(0), None

            return jax.lax.scan(add, jnp.zeros_like(theta), chunks)[0]

        return jax.jit(total)

    @cached_property
    def _product(self) -> Callable:
        def value(theta, x, y):
            f = self._rows(self.function(self.unravel(theta), x))
            return jnp.mean(jax.vmap(self.loss)(f, y))

        return lambda theta, x, y, v: jax.jvp(lambda t: jax.grad(value)(t, x, y), (theta,), (v,))[1]

    @cached_property
    def _one_product(self) -> Callable:
        return jax.jit(self._product)

    @cached_property
    def _several_products(self) -> Callable:
        return jax.jit(jax.vmap(self._product, in_axes=(None, None, None, 0)))

    def products(self, rows: np.ndarray) -> np.ndarray:
        """∇²L applied to each row."""
        blocks = [rows[i : i + ROWS_AT_ONCE] for i in range(0, len(rows), ROWS_AT_ONCE)]
        found = [self._several_products(self.theta, self.x, self.y, block) for block in blocks]
        return np.concatenate([np.asarray(block) for block in found])

    def matvec(self, v: np.ndarray) -> np.ndarray:
        return np.array(self._one_product(self.theta, self.x, self.y, v))


def function_problem(function: Callable, params: Any, data: Any, loss: Any) -> FunctionProblem:
    """Checks all that is given; raises a sentence where it cannot be measured."""
    x, y = arrays_of(data)
    if loss == "cross_entropy":
        _check_integers(y)
    elif y.dtype.kind not in "biuf":
        raise FlattestError(f"The targets are of type {y.dtype}; give them as numbers.")
    if is_named(loss):
        flattest_loss(loss).check_labels(y)
    leaves, tree = named_leaves(params)
    names = list(leaves)

    def of_leaves(values, x):
        return function(jax.tree.unflatten(tree, [values[name] for name in names]), x)

    found = FunctionProblem(of_leaves, leaves, jnp.asarray(x), jnp.asarray(y), sample_loss(loss))
    _check_outputs(found)
    if loss == "cross_entropy":
        _check_classes(y, found.outputs.shape[1])
    _check_loss(found)
    _check_used(found)
    return found


def named_leaves(params: Any) -> tuple[dict[str, jnp.ndarray], Any]:
    """Parameters by their path in the tree, in float64, and the tree."""
    paths, tree = jax.tree_util.tree_flatten_with_path(params)
    if not paths:
        raise FlattestError("Parameters are a tree of arrays with at least one leaf.")
    leaves = {}
    for path, leaf in paths:
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "theta"
        try:
            leaves[name] = jnp.asarray(leaf, jnp.float64)
        except (TypeError, ValueError) as error:
            raise FlattestError(f"Parameter {name} must be a real array: {error}") from None
        if not bool(jnp.isfinite(leaves[name]).all()):
            raise FlattestError(f"Parameter {name} has entries that are not finite.")
    return leaves, tree


def arrays_of(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a Dataset, a pair of arrays, or batches of pairs put together."""
    if isinstance(data, Dataset):
        return data.x, data.y
    pairs = [data] if _is_pair(data) else _listed(data)
    if not sum(len(x) for x, _ in pairs):
        raise FlattestError("The data are empty: they need at least one sample.")
    x, y = (np.concatenate([np.asarray(pair[k]) for pair in pairs]) for k in (0, 1))
    if len(x) != len(y):
        raise FlattestError(f"Inputs {x.shape} and targets {y.shape} must have as many rows each.")
    if x.dtype.kind != "f":
        raise FlattestError(f"The inputs are of type {x.dtype}; give them as floating point.")
    if not np.isfinite(x).all():
        raise FlattestError("The inputs contain NaN or infinite values; remove those samples.")
    return x.astype(np.float64), y.astype(np.float64) if y.dtype.kind == "f" else y


def _is_pair(data: Any) -> bool:
    arrays = isinstance(data, list | tuple) and len(data) == 2
    return arrays and all(hasattr(part, "shape") and np.ndim(part) > 0 for part in data)


def _listed(data: Any) -> list:
    if not isinstance(data, Iterable):
        raise FlattestError(
            f"Data are a pair of arrays or batches of such pairs, not {type(data).__name__}."
        )
    pairs = list(data)
    if not all(_is_pair(pair) for pair in pairs):
        raise FlattestError("Every batch must be a pair of arrays: inputs and targets.")
    return pairs


def is_named(loss: Any) -> bool:
    """Whether it is one of flattest's losses; raises for names of none."""
    if isinstance(loss, str) and loss not in (*LOSSES, "cross_entropy"):
        raise unknown("loss", loss, [*LOSSES, "cross_entropy"])
    return isinstance(loss, (str, *LOSSES.values())) and loss != "cross_entropy"


def sample_loss(loss: Any) -> Callable[[Any, Any], Any]:
    """ℓ(f_i, y_i) of one sample's outputs, a vector, and its target."""
    if loss == "cross_entropy":
        return lambda f, y: -jax.nn.log_softmax(f)[y]
    if is_named(loss):
        kind = flattest_loss(loss)
        return lambda f, y: kind.value(f, jnp.reshape(y, f.shape)).sum()
    if not callable(loss):
        raise FlattestError(f"A loss is a name or a function of outputs and target, not {loss!r}.")
    return lambda f, y: jnp.reshape(loss(f, y), ())


def _check_integers(y: np.ndarray) -> None:
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise FlattestError(
            "cross_entropy takes one integer label a sample; these are of type "
            f"{y.dtype} and shape {y.shape}."
        )


def _check_classes(y: np.ndarray, classes: int) -> None:
    """JAX would read a label beyond the last class as the last, and one below 0 from the end."""
    if (outside := y[(y < 0) | (y >= classes)]).size:
        raise FlattestError(
            f"The label {outside[0]} is none of the {classes} classes that the outputs stand for; "
            f"cross_entropy takes labels from 0 to {classes - 1}."
        )


def _check_outputs(p: FunctionProblem) -> None:
    try:
        f, alone = p.outputs, p.function(p.leaves, p.x[:1])
    except FlattestError:
        raise
    except Exception as error:  # Whatever the user's function raises on these inputs.
        raise FlattestError(f"The function fails on these inputs: {first_line(error)}.") from None
    _check_traceable(p)
    if len(f) != p.samples or not bool(jnp.isfinite(f).all()):
        raise FlattestError("The function must give a row of finite outputs for each sample.")
    if not np.allclose(f[:1], alone.reshape(1, -1), rtol=1e-8, atol=1e-10):
        raise FlattestError(
            "The function's output for a sample depends on the rest of its batch; ∇²L is then not "
            "defined sample by sample."
        )


def _check_traceable(p: FunctionProblem) -> None:
    """NumPy's functions and branches on values work on arrays, and not where JAX differentiates."""
    try:
        jax.eval_shape(p.function, p.leaves, p.x[:1])
    except Exception as error:  # Whatever the user's function raises on JAX's tracers.
        raise FlattestError(
            "The function must be written in JAX (jax.numpy for numpy, jnp.where for a branch on "
            f"values), or it cannot be differentiated: {first_line(error)}."
        ) from None


def _check_loss(p: FunctionProblem) -> None:
    try:
        value = p.mean_loss()
    except Exception as error:  # Whatever the loss raises on these outputs and targets.
        raise FlattestError(
            f"The loss fails on outputs {p.outputs.shape} and targets {p.y.shape}: "
            f"{first_line(error)}."
        ) from None
    if not np.isfinite(value):
        raise FlattestError("The loss is not a finite number on every sample.")


def _check_used(p: FunctionProblem) -> None:
    """A parameter that no equation of the jaxpr takes is refused."""
    jaxpr = jax.make_jaxpr(p.function)(p.leaves, p.x[:1]).jaxpr
    taken = {id(atom) for equation in jaxpr.eqns for atom in equation.invars}
    taken |= {id(atom) for atom in jaxpr.outvars}
    names = sorted(p.leaves)
    unused = [n for n, v in zip(names, jaxpr.invars, strict=False) if id(v) not in taken]
    if unused:
        raise FlattestError(
            f"The outputs do not depend on {', '.join(unused)}; leave unused parameters out."
        )
