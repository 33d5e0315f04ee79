"""The functions that the flattest search works with, of a PyTorch module: in PyTorch, float64."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from torch.func import functional_call, grad_and_value, jacrev, vmap

from flattest.flatness.constraint import GOAL, Interpolators, Point, least_norm, tangent
from flattest.problem.data import Dataset
from flattest.problem.libraries import TorchModel
from flattest.problem.losses import Loss


class ModuleInterpolators(Interpolators):
    """`Interpolators` whose outputs, Jacobian and trace PyTorch computes, sample by sample."""

    def __init__(
        self, model: TorchModel, data: Dataset, loss: Loss, train_x: np.ndarray | None = None
    ):
        super().__init__(model, data, loss, train_x)
        self.module = model.filled(model.init(data.d, 0), data.d)
        self.points = {"data": _tensor(self.x), "constrained": _tensor(self.constrained_x)}
        self.spectrum = _tensor(self.weights), _tensor(self.columns)
        self.outputs = lambda theta: jnp.asarray(self._seen(_tensor(theta)).detach().numpy())
        self.jacobian = lambda theta: jnp.asarray(self._jacobian(_tensor(theta)).detach().numpy())
        self.trace = lambda theta: self._trace_of(_tensor(theta)).item()
        self.move = self._moved

    def _one(self, theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """The outputs of one sample, a vector."""
        sizes = [int(np.prod(shape)) for shape in self.shapes.values()]
        parts = zip(self.shapes.items(), theta.split(sizes), strict=True)
        params = {name: part.reshape(shape) for (name, shape), part in parts}
        return functional_call(self.module, params, (x[None],)).reshape(-1)

    def _each(self, function: Callable, theta: torch.Tensor, points: str) -> torch.Tensor:
        return vmap(function, (None, 0))(theta, self.points[points])

    def _seen(self, theta: torch.Tensor) -> torch.Tensor:
        return self.loss.seen(self._each(self._one, theta, "constrained")).reshape(-1)

    def _jacobian(self, theta: torch.Tensor) -> torch.Tensor:
        def seen(theta, x):
            return self.loss.seen(self._one(theta, x))

        return self._each(jacrev(seen), theta, "constrained").reshape(-1, len(theta))

    def _trace_of(self, theta: torch.Tensor) -> torch.Tensor:
        J = self._each(jacrev(self._one), theta, "data")
        weights, columns = self.spectrum
        rows = torch.einsum("cno,nop->cnp", columns.reshape(*weights.shape, -1), J)
        return (weights * (rows**2).sum(-1)).sum()

    def _moved(self, theta: Any, direction: Any, size: float, tau: float) -> Point:
        """The point that a step of this size leads to, once retracted by Gauss–Newton."""
        theta = theta + size * direction
        residual = self.target - self.outputs(theta)
        for _ in range(8):
            if not jnp.abs(residual).max() > GOAL * self.scale:
                break
            theta = theta + least_norm(self.jacobian(theta), residual)
            residual = self.target - self.outputs(theta)
        gradient, value = grad_and_value(self._trace_of)(_tensor(theta))
        J = self.jacobian(theta)
        g = jnp.asarray(gradient.detach().numpy())
        tangents = tangent(J, g), tangent(J, jnp.asarray(direction))
        return Point(theta, self.target - residual, jnp.asarray(value.item()), *tangents)


def _tensor(values: Any) -> torch.Tensor:
    return torch.tensor(np.asarray(values))
