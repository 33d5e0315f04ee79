"""∇²L of an MLP at θ: what every architecture offers beside products.

Vectors of R^p are laid out in blocks: "first" (m, d′) holds W1 with b1 as a last column, since
x′ = (x, 1); then gamma, the hidden W_l, the last W_D and b_out, as far as they exist.
"""

from abc import abstractmethod

import numpy as np

from flattest.curvature.operator import Hessian
from flattest.problem.data import Dataset
from flattest.problem.losses import Loss
from flattest.problem.models import MLP, Params


def row_dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a_i · b_i for each row i."""
    return np.vecdot(a, b)


def blocks_of(model: MLP, params: Params) -> dict[str, np.ndarray]:
    """θ in float64 and in the layout above, whatever order the names came in."""
    theta = {k: np.asarray(params[k], np.float64) for k in model.shapes(np.shape(params["W1"])[1])}
    first = theta.pop("W1")
    return {"first": np.column_stack([first, theta.pop("b1")]) if model.bias else first} | theta


class NetworkHessian(Hessian):
    """The Hessian of L for one MLP at θ; subclasses hold an architecture's derivatives."""

    def __init__(
        self,
        model: MLP,
        theta: dict[str, np.ndarray],
        data: Dataset,
        loss: Loss,
        rows: slice = slice(None),
    ):
        """`theta` in blocks; `rows` leaves only these training points' terms of the sum."""
        self.model, self.data, self.theta = model, data, theta
        self.inputs, y = data.x[rows], data.y[rows]
        self.ones = np.ones((len(y), 1))
        self.x = np.hstack([self.inputs, self.ones]) if model.bias else self.inputs
        self.last = self.theta[f"W{model.depth}"]
        self.offset = self.theta.get("b_out", 0.0)
        self.f = self._forward()
        self.u = loss.slope(self.f, y) / data.n
        self.w = loss.curvature(self.f, y) / data.n

    @property
    def size(self) -> int:
        """p, the number of parameters."""
        return sum(block.size for block in self.theta.values())

    @property
    def first_layer_inputs(self) -> dict[str, np.ndarray]:
        """x′ split by the parameter it multiplies."""
        return {"W1": self.inputs} | ({"b1": self.ones} if self.model.bias else {})

    def blocks(self, v: np.ndarray) -> dict[str, np.ndarray]:
        """Views into a vector of R^p, block by block."""
        views, start = {}, 0
        for name, block in self.theta.items():
            views[name] = v[start : start + block.size].reshape(block.shape)
            start += block.size
        return views

    def as_params(self, v: np.ndarray) -> dict[str, np.ndarray]:
        """A vector of R^p in the shapes of θ."""
        blocks = self.blocks(v)
        first = blocks.pop("first")
        if not self.model.bias:
            return {"W1": first} | blocks
        return {"W1": first[:, :-1], "b1": first[:, -1]} | blocks

    def sigma(self, derivative: str, h: np.ndarray) -> np.ndarray:
        """σ, σ′ or σ″ ("value", "slope", "curvature") as NumPy, for registered ones too."""
        return np.asarray(getattr(self.model.sigma, derivative)(h))

    def trace(self) -> dict[str, float]:
        """Tr ∇²L by parameter: Σ_i w_i ‖∇f_i‖² + u_i Tr ∇²f_i."""
        traces = {name: float(self.w @ square) for name, square in self.squares().items()}
        for name, laplacian in self.laplacians().items():
            traces[name] += float(self.u @ laplacian)
        return traces

    @abstractmethod
    def _forward(self) -> np.ndarray:
        """f(x_i); keeps what the derivatives need."""

    @abstractmethod
    def squares(self) -> dict[str, np.ndarray]:
        """‖∂f_i/∂W‖² for each parameter W, (n,)."""

    @abstractmethod
    def laplacians(self) -> dict[str, np.ndarray]:
        """Tr ∂²f_i/∂W² for each parameter W where it is not 0 for all θ, (n,)."""
