"""∇²L of a JAX function of parameters and inputs with any number of outputs, by autodiff."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from flattest.curvature.function_checks import (
    check_digits,
    check_first_derivatives,
    check_loss,
    check_second_derivatives,
)
from flattest.curvature.inputs import (
    attempt,
    batches_of,
    check_outputs,
    check_used,
    is_named,
    takes_classes,
)
from flattest.curvature.operator import ROWS_AT_ONCE, Operator
from flattest.curvature.trees import parted
from flattest.errors import FlattestError
from flattest.problem.data import Dataset
from flattest.problem.losses import Loss, loss as flattest_loss
from flattest.problem.models import Model
from flattest.rescaling.jaxpr import structure_of, unused


class _Compiled(NamedTuple):
    """Functions of `at` = (params, train_x, x, y); those of the loss of outputs and targets."""

    outputs: Callable
    mean_loss: Callable
    gradient: Callable
    squares: Callable
    factors: Callable
    products: Callable
    residual_products: Callable
    loss_slopes: Callable
    loss_products: Callable


@dataclass(eq=False)
class FunctionOperator(Operator):
    """L(θ) = (1/n) Σ ℓ(f_i, y_i) with f = apply(params, x, train_x), compiled for it."""

    apply: Callable[[Any, Any, Any], Any]
    compiled: _Compiled
    leaves: dict[str, jnp.ndarray]
    tree: Any
    x: jnp.ndarray
    y: jnp.ndarray
    # The parameters with what the user's tree has beside them.
    restored: Callable[[Any], Any] = lambda params: params
    # Per-sample gradients held at once: 128 MB in float64, or one sample's where that is more.
    most_gradient_entries: int = 2**24

    def __post_init__(self):
        self.shapes = {name: leaf.shape for name, leaf in self.leaves.items()}
        self.samples = len(self.x)
        self.at = self._params(self.leaves), self.x, self.x, self.y

    def _params(self, leaves: dict[str, Any]) -> Any:
        return jax.tree.unflatten(self.tree, list(leaves.values()))

    def as_params(self, v):
        return self.restored(self._params(self.by_name(v)))

    @cached_property
    def f(self) -> np.ndarray:
        """(n, outputs)."""
        return np.asarray(self.compiled.outputs(*self.at))

    @cached_property
    def jaxpr(self):
        """What f computes for one sample, as a function of the leaves by name."""

        def of_leaves(leaves, x):
            return self.apply(self._params({name: leaves[name] for name in self.leaves}), x, self.x)

        return jax.make_jaxpr(of_leaves)(self.leaves, self.x[:1])

    @cached_property
    def structure(self):
        """As the sample with the fewest zeros shows it, which could stand for no other value."""
        full = int(np.count_nonzero(np.asarray(self.x).reshape(len(self.x), -1), axis=1).argmax())
        return structure_of(self.jaxpr, self.leaves, self.x[full : full + 1])

    def mean_loss(self):
        return float(self.compiled.mean_loss(*self.at))

    def point(self):
        return np.concatenate([np.ravel(leaf) for leaf in self.leaves.values()])

    def loss_at(self, theta):
        return float(self.compiled.mean_loss(*self._at(theta)))

    def gradient_at(self, theta):
        found = self.compiled.gradient(*self._at(theta))
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)])

    def _at(self, theta: np.ndarray) -> tuple:
        return self._params(self.by_name(theta)), *self.at[1:]

    def part(self, rows):
        """What is normalized over the training set keeps the statistics of all of it."""
        found = copy.copy(self)
        found.x, found.y, found.samples = self.x[rows], self.y[rows], len(rows)
        found.at = *self.at[:2], found.x, found.y
        for known in ("f", "_rows"):
            found.__dict__.pop(known, None)
        return found

    def outputs(self, factors=None):
        if factors is None:
            return self.f
        params, *rest = self.at
        return np.asarray(self.compiled.outputs(self._scaled(factors), *rest))

    def rescaled(self, factors):
        return self.restored(self._scaled(factors))

    def _scaled(self, factors):
        scaled = {name: np.asarray(leaf) * factors[name] for name, leaf in self.leaves.items()}
        return self._params(scaled)

    def gauss_newton_diagonal(self):
        entries = self.size * self.f.shape[1]
        at_once = min(self.samples, max(1, self.most_gradient_entries // entries))
        # The last chunk is filled up with samples of weight 0.
        order = np.arange(self.samples + -self.samples % at_once)
        counted = (order < self.samples).astype(float) / self.samples
        rows = order % self.samples
        chunks = [
            a.reshape(-1, at_once, *a.shape[1:]) for a in (self.x[rows], self.y[rows], counted)
        ]
        return np.asarray(self.compiled.squares(*self.at, chunks))

    def matmat(self, rows):
        self._second_derivatives  # noqa: B018
        # A copy, because JAX's buffers are read-only.
        return np.array(self.compiled.products(*self.at, rows))

    @cached_property
    def _second_derivatives(self) -> None:
        def products_at(theta: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return np.asarray(self.compiled.products(*self._at(theta), rows))

        check_second_derivatives(self, products_at)

    def residual_matmat(self, rows):
        self._second_derivatives  # noqa: B018
        return np.array(self.compiled.residual_products(*self.at, rows))

    @cached_property
    def _rows(self) -> np.ndarray:
        """A, (n · outputs, p), with G = Aᵀ A; empty where it is too large or G has both signs."""
        count = self.f.size
        if count > self.largest_gram or count * self.size > self.most_gradient_entries:
            return np.empty((0, self.size))
        values, rows = (np.asarray(a) for a in self.compiled.factors(*self.at))
        roots = np.sqrt(values.clip(0) / self.samples).reshape(-1, 1)
        return roots * rows.reshape(-1, self.size) if (values >= 0).all() else rows[:0, 0]

    def gauss_newton_gram(self):
        return self._rows @ self._rows.T

    def lifted(self, c):
        return c @ self._rows


def _compile(apply: Callable, loss: Callable) -> _Compiled:
    """Inside, θ is one vector."""

    def network(params, train_x, x):
        theta, unravel = ravel_pytree(params)
        return theta, lambda theta: apply(unravel(theta), x, train_x).reshape(len(x), -1)

    def of_sample(params, train_x, x, y):
        """The eigenvalues λ_c of ∇²_f ℓ_i, and Jᵀ v_c for each eigenvector v_c."""
        theta, f_of = network(params, train_x, x[None])
        f, pullback = jax.vjp(lambda theta: f_of(theta)[0], theta)
        hessian = jax.hessian(loss)(f, y)
        values, vectors = jnp.linalg.eigh(0.5 * (hessian + hessian.T))
        return values, jax.vmap(lambda v: pullback(v)[0])(vectors.T)

    def mean_loss(f, y):
        return jnp.mean(jax.vmap(loss)(f, y))

    def squares(params, train_x, _x, _y, chunks):
        """(1/n) Σ_i Σ_c λ_ic (J_iᵀ v_ic)², over `chunks` of inputs, targets and weights 1/n."""

        def of_weighted(x, y, weight):
            values, rows = of_sample(params, train_x, x, y)
            return weight * values @ rows**2

        def add(total, chunk):
            return total + jax.vmap(of_weighted)(*chunk).sum(0), None

        return jax.lax.scan(add, jnp.zeros_like(network(params, train_x, train_x)[0]), chunks)[0]

    def factors(params, train_x, x, y):
        one = lambda sample: of_sample(params, train_x, *sample)  # noqa: E731
        return jax.lax.map(one, (x, y), batch_size=ROWS_AT_ONCE)

    def derivatives(gradient, theta, rows):
        product = lambda v: jax.jvp(gradient, (theta,), (v,))[1]  # noqa: E731
        return jax.lax.map(product, rows, batch_size=ROWS_AT_ONCE)

    def products(params, train_x, x, y, rows):
        theta, f = network(params, train_x, x)
        return derivatives(jax.grad(lambda t: mean_loss(f(t), y)), theta, rows)

    def residual_products(params, train_x, x, y, rows):
        """Those of the gradient of Σ_i u_i · f_i, u = ∇_f L being held."""
        theta, f = network(params, train_x, x)
        u = jax.grad(mean_loss)(f(theta), y)
        return derivatives(lambda t: jax.vjp(f, t)[1](u)[0], theta, rows)

    def outputs(params, train_x, x, _y):
        theta, f = network(params, train_x, x)
        return f(theta)

    def value(*at):
        return mean_loss(outputs(*at), at[-1])

    gradient = jax.grad(value)

    def loss_slopes(f, y):
        return jax.vmap(jax.grad(loss))(f, y)

    def loss_products(f, y, z):
        """(∇²_f ℓ_i) z_i."""
        return jax.jvp(lambda t: loss_slopes(t, y), (f,), (z,))[1]

    functions: tuple[Callable[..., Any], ...] = (
        *(outputs, value, gradient, squares, factors, products, residual_products),
        *(loss_slopes, loss_products),
    )
    return _Compiled(*(jax.jit(function) for function in functions))


class _Function(NamedTuple):
    """f = apply(params, x, train_x) with the derivatives of L, and what its targets have to be."""

    apply: Callable[[Any, Any, Any], Any]
    compiled: _Compiled
    check_targets: Callable[[np.ndarray, int], Any]


def _of_function(function: Any, whole: bool, loss: Any) -> _Function:
    apply, (value, check_targets) = _applied(function, whole), sample_loss(loss)
    return _Function(apply, _compile(apply, value), check_targets)


_of_model = lru_cache(maxsize=64)(_of_function)


def function_operator(function: Any, params: Any, data: Any, loss: Any) -> FunctionOperator:
    """∇²L of a model or a function.

    A model is frozen, and compiled once for each loss and shape. What a function computes may
    change between calls: nothing of it that is compiled outlives the operator.
    Checks all that is given; raises a sentence where it cannot be measured.
    """
    make: Callable[..., _Function] = _of_model
    restored = None
    if not isinstance(function, Model):
        make = _of_function
        if callable(function):
            function, params, restored = parted(function, params)
    failure = f"The model {type(function).__name__} and the loss must be hashable (frozen classes)"
    kind = attempt(failure, make, function, isinstance(data, Dataset), loss)
    found = _checked(kind, params, *_arrays(data))
    if callable(loss):
        slopes, products = kind.compiled.loss_slopes, kind.compiled.loss_products
        check_loss(found.f, lambda f: slopes(f, found.y), lambda f, z: products(f, found.y, z))
    found.restored = restored or found.restored
    check_used(unused(found.jaxpr, found.leaves), "leave unused parameters out")
    return found


def _applied(function: Any, whole: bool) -> Callable[[Any, Any, Any], Any]:
    """f(params, x, train_x); only a `whole` training set has statistics to normalize by."""
    if isinstance(function, Model):
        return function.apply if whole else lambda params, x, _: function.apply(params, x, None)
    if not callable(function):
        raise FlattestError(
            "A model or a function of parameters and inputs is measured, "
            f"not a {type(function).__name__}."
        )
    return lambda params, x, _: function(params, x)


_NOT_JAX = (
    "The function must be written in JAX (jax.numpy for numpy, jnp.where for a branch on values), "
    "or it cannot be differentiated"
)


def _checked(kind: _Function, params: Any, x, y) -> FunctionOperator:
    leaves, tree = _named_leaves(params)
    theta, x = jax.tree.unflatten(tree, leaves.values()), jnp.asarray(x)
    alone = attempt("The function fails on these inputs", kind.apply, theta, x[:1], x)
    if not hasattr(alone, "shape"):
        raise FlattestError(
            "The function must return one array with a row for each sample, not a "
            f"{type(alone).__name__}; say which part: lambda p, x: f(p, x)[0]."
        )
    kind.check_targets(y, np.size(alone))
    op = FunctionOperator(kind.apply, kind.compiled, leaves, tree, x, jnp.asarray(y))
    attempt(_NOT_JAX, check_digits, lambda: op.jaxpr)
    # NumPy's functions and branches on values work on arrays, and not where JAX differentiates.
    f = attempt(_NOT_JAX, lambda: op.f)
    finite = len(f) == len(x) and bool(np.isfinite(f).all())
    # Every other one too: of samples that follow one another, the first depends on itself alone.
    apart = [kind.apply(theta, x[start::2], x) for start in range(min(2, len(x) - 1))]
    parts = [(f[:1], alone), *((f[start::2], own) for start, own in enumerate(apart))]
    same = all(
        np.allclose(rows, np.reshape(own, rows.shape), rtol=1e-8, atol=1e-10)
        for rows, own in (parts if finite else [])
    )
    check_outputs("function", finite, same)
    shapes = f"outputs {f.shape} and targets {op.y.shape}"
    if not np.isfinite(attempt(f"The loss fails on {shapes}", op.mean_loss)):
        raise FlattestError("The loss is not a finite number on every sample.")
    check_first_derivatives(op)
    return op


def _named_leaves(params: Any) -> tuple[dict[str, jnp.ndarray], Any]:
    """Parameters by their path in the tree, in float64, and the tree."""
    paths, tree = jax.tree_util.tree_flatten_with_path(params)
    if not paths:
        raise FlattestError("Parameters are a tree of arrays with at least one leaf.")
    leaves = {}
    for path, leaf in paths:
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "theta"
        failure = f"Parameter {name} must be a real array"
        if np.iscomplexobj(leaf):
            raise FlattestError(
                f"Parameter {name} is complex; give its real and imaginary parts as parameters."
            )
        leaves[name] = attempt(failure, jnp.asarray, leaf, jnp.float64)
        if not np.isfinite(leaves[name]).all():
            raise FlattestError(f"Parameter {name} has entries that are not finite.")
    return leaves, tree


def _arrays(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """All batches put together, real numbers in float64."""
    pairs = batches_of(data)
    x, y = (np.concatenate([np.asarray(pair[k]) for pair in pairs]) for k in (0, 1))
    if x.dtype.kind not in "fiub":
        raise FlattestError(f"The inputs are of type {x.dtype}; give them as floating point.")
    if not np.isfinite(x).all():
        raise FlattestError("The inputs contain NaN or infinite values; remove those samples.")
    x, y = (a.astype(np.float64) if a.dtype.kind == "f" else a for a in (x, y))
    return x, y


def sample_loss(loss: Any) -> tuple[Callable, Callable[[np.ndarray, int], Any]]:
    """ℓ(f_i, y_i) of one sample's outputs, a vector, and its target; and a check of all targets
    for a number of outputs."""
    if takes_classes(loss):
        entropy = flattest_loss(loss)
        return lambda f, y: entropy.value(f[None], y[None])[0], _check_classes
    if is_named(loss):
        kind = flattest_loss(loss)
        value = _with_its_derivatives(kind)
        return (
            lambda f, y: value(f, jnp.reshape(y, f.shape)).sum(),
            lambda y, _: kind.check_labels(_numbers(y)),
        )
    if not callable(loss):
        raise FlattestError(f"A loss is a name or a function of outputs and target, not {loss!r}.")
    return lambda f, y: jnp.reshape(loss(f, y), ()), lambda y, _: _numbers(y)


def _with_its_derivatives(loss: Loss) -> Callable:
    """ℓ with ℓ′ and ℓ″ as the loss has them: autodiff of log(1 + e^t) loses their digits."""
    value, slope = jax.custom_jvp(loss.value), jax.custom_jvp(loss.slope)
    value.defjvps(lambda df, _, f, y: slope(f, y) * df, None)
    slope.defjvps(lambda df, _, f, y: loss.curvature(f, y) * df, None)
    return value


def _numbers(y: np.ndarray) -> np.ndarray:
    if y.dtype.kind not in "biuf":
        raise FlattestError(f"The targets are of type {y.dtype}; give them as numbers.")
    return y


def _check_classes(y: np.ndarray, classes: int) -> None:
    """JAX would read a label beyond the last class as the last, and one below 0 from the end."""
    if y.ndim != 1 or y.dtype.kind not in "iuf" or not (y == np.round(y)).all():
        raise FlattestError(
            "cross_entropy takes one integer label per sample; these are of type "
            f"{y.dtype} and shape {y.shape}."
        )
    if (outside := y[(y < 0) | (y >= classes)]).size:
        raise FlattestError(
            f"The label {outside[0]} is not one of the {classes} classes that the outputs stand "
            f"for; cross_entropy takes labels from 0 to {classes - 1}."
        )
