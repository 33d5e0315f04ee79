"""∇²L of an MLP at θ, in closed form: what every architecture offers beside products.

Vectors of R^p are laid out in blocks: "first" (m, d′) holds W1 with b1 as a last column, since
x′ = (x, 1); then gamma, the hidden W_l, the last W_D and b_out, as far as they exist.
"""

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property

import jax
import numpy as np

from flattest.curvature.operator import Operator, split
from flattest.problem.data import Dataset
from flattest.problem.losses import Loss
from flattest.problem.models import MLP, Params
from flattest.rescaling.jaxpr import structure_of
from flattest.rescaling.units import DEGENERATE


def row_dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a_i · b_i for each row i."""
    return np.vecdot(a, b)


def blocks_of(model: MLP, params: Params) -> dict[str, np.ndarray]:
    """θ in float64 and in the layout above, whatever order the names came in."""
    theta = {k: np.asarray(params[k], np.float64) for k in model.shapes(np.shape(params["W1"])[1])}
    first = theta.pop("W1")
    return {"first": np.column_stack([first, theta.pop("b1")]) if model.bias else first} | theta


class NetworkHessian(Operator):
    """∇²L for one MLP at θ; subclasses hold an architecture's derivatives.

    Nothing is computed before it is asked for: the trace passes over blocks of points, whose
    operators leave all other points' terms out of the sum (`rows`).
    """

    # Points × neurons of a block of the trace: larger arrays leave the cache and are paid for in
    # page faults, so that the cost would no longer be linear in width and n.
    entries_at_once = 65_536

    def __init__(
        self,
        model: MLP,
        theta: dict[str, np.ndarray],
        data: Dataset,
        loss: Loss,
        rows: slice = slice(None),
        share: np.ndarray | None = None,
    ):
        """`theta` in blocks; `share` is what each sample counts in L, 1/n unless it is given."""
        self.model, self.theta, self.data, self.loss = model, theta, data, loss
        self.inputs, self.y, self.share = data.x[rows], data.y[rows], share
        self.ones = np.ones((len(self.y), 1))
        self.last = self.theta[f"W{model.depth}"]
        self.offset = self.theta.get("b_out", 0.0)
        self.samples = data.n
        self.shapes = {name: block.shape for name, block in theta.items()}

    @cached_property
    def x(self) -> np.ndarray:
        """x′."""
        return np.hstack([self.inputs, self.ones]) if self.model.bias else self.inputs

    @cached_property
    def f(self) -> np.ndarray:
        """f(x_i)."""
        return self._forward()

    @cached_property
    def u(self) -> np.ndarray:
        slope = self.loss.slope(self.f, self.y)
        return slope / self.data.n if self.share is None else slope * self.share

    @cached_property
    def w(self) -> np.ndarray:
        curvature = self.loss.curvature(self.f, self.y)
        return curvature / self.data.n if self.share is None else curvature * self.share

    @property
    def first_layer_inputs(self) -> dict[str, np.ndarray]:
        """x′ split by the parameter it multiplies."""
        return {"W1": self.inputs} | ({"b1": self.ones} if self.model.bias else {})

    def blocks(self, v: np.ndarray) -> dict[str, np.ndarray]:
        """Views into a vector of R^p, block by block."""
        return split(v, self.shapes)

    def by_name(self, v):
        blocks = self.blocks(v)
        first = blocks.pop("first")
        if not self.model.bias:
            return {"W1": first} | blocks
        return {"W1": first[:, :-1], "b1": first[:, -1]} | blocks

    def sigma(self, derivative: str, h: np.ndarray) -> np.ndarray:
        """σ, σ′ or σ″ ("value", "slope", "curvature") as NumPy, for registered ones too."""
        return np.asarray(getattr(self.model.sigma, derivative)(h))

    def closed_form(self):
        """Tr ∇²L by parameter, summed over blocks of points; infinite where it overflows."""
        n, tied = self.data.n, self.model.normalization.by_neuron
        rows = n if tied else max(1, self.entries_at_once // self.model.width)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [self._trace(slice(start, start + rows)) for start in range(0, n, rows)]
        sums = {name: sum(part[name] for part in parts) for name in parts[0]}
        return {name: value if np.isfinite(value) else np.inf for name, value in sums.items()}

    def _trace(self, rows: slice) -> dict[str, float]:
        """Σ_i w_i ‖∇f_i‖² + u_i Tr ∇²f_i over the rows."""
        block = self._block(rows)
        offset = {"b_out": block.ones[:, 0]} if self.model.output_bias else {}
        squares = block.squares() | offset
        traces = {name: float(block.w @ square) for name, square in squares.items()}
        for name, laplacian in block.laplacians().items():
            traces[name] += float(block.u @ laplacian)
        return traces

    def _block(self, rows: slice) -> "NetworkHessian":
        """These points' terms; all of them have been computed here where other measures asked."""
        if len(self.data.y[rows]) == self.data.n:
            return self
        share = None if self.share is None else self.share[rows]
        return type(self)(self.model, self.theta, self.data, self.loss, rows, share)

    def gauss_newton_diagonal(self):
        return sum(w * self.vjp(e) ** 2 for w, e in zip(self.w, np.eye(len(self.w)), strict=True))

    def matvec(self, v):
        return self.product(v, self.w)

    def matmat(self, rows):
        return np.stack([self.product(row, self.w) for row in rows])

    def residual_matmat(self, rows):
        return np.stack([self.product(row, np.zeros_like(self.w)) for row in rows])

    def residual_bound(self):
        return None if self.u.any() else 0.0

    def gauss_newton_gram(self):
        """√w_i ∇f_i · ∇f_k √w_k."""
        if self.data.n > self.largest_gram:
            return super().gauss_newton_gram()
        root, gram = np.sqrt(self.w), self.gram()
        gram *= root
        gram *= root[:, None]
        return gram

    def lifted(self, c):
        return self.vjp(np.sqrt(self.w) * c)

    @cached_property
    def structure(self):
        params, x = self._params, self.data.x[:1]
        found = structure_of(jax.make_jaxpr(self._apply)(params, x), params, x)
        units = found.units if self.model.norm is None else DEGENERATE.format("the normalization")
        return replace(found, units=units)

    @property
    def _params(self) -> dict[str, np.ndarray]:
        return self.by_name(np.concatenate([block.ravel() for block in self.theta.values()]))

    def _apply(self, params: Params, x):
        # Sim-BN's statistics are those of the whole training set, whatever part is looked at.
        return self.model.apply(params, x, self.data.x)

    def mean_loss(self):
        values = np.asarray(self.loss.value(self.f, self.y))
        return float(np.mean(values) if self.share is None else values @ self.share)

    def point(self):
        return np.concatenate([block.ravel() for block in self.theta.values()])

    def at(self, theta: np.ndarray) -> "NetworkHessian":
        """The same at another θ, a vector of R^p."""
        blocks = self.blocks(theta)
        return type(self)(self.model, blocks, self.data, self.loss, share=self.share)

    def loss_at(self, theta):
        return self.at(theta).mean_loss()

    def gradient_at(self, theta):
        there = self.at(theta)
        return there.vjp(there.u)

    def part(self, rows):
        """All points stay, for the statistics of normalizations; those outside count 0."""
        share = np.bincount(rows, minlength=self.data.n) / len(rows)
        found = type(self)(self.model, self.theta, self.data, self.loss, share=share)
        found.samples = len(rows)
        return found

    def outputs(self, factors=None):
        return np.asarray(self._apply(self.rescaled(factors or {}), self.data.x))

    def rescaled(self, factors):
        return {name: value * factors.get(name, 1.0) for name, value in self._params.items()}

    @abstractmethod
    def _forward(self) -> np.ndarray:
        """f(x_i)."""

    @property
    @abstractmethod
    def first_slopes(self) -> np.ndarray:
        """σ′ of the first layer's neurons, (n, m)."""

    @abstractmethod
    def gram(self) -> np.ndarray:
        """∇f_i · ∇f_k, (n, n)."""

    @abstractmethod
    def vjp(self, u: np.ndarray) -> np.ndarray:
        """Σ_i u_i ∇f_i."""

    @abstractmethod
    def product(self, v: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Σ_i w_i ∇f_i ∇f_iᵀ v + Σ_i u_i ∇²f_i v, with w in place of ℓ″/n."""

    @abstractmethod
    def squares(self) -> dict[str, np.ndarray]:
        """‖∂f_i/∂W‖² for each parameter W but b_out, (n,)."""

    @abstractmethod
    def laplacians(self) -> dict[str, np.ndarray]:
        """Tr ∂²f_i/∂W² for each parameter W where it is not 0 for all θ, (n,)."""
