"""A dense Hessian without automatic differentiation by JAX and without compilation.

A `Jet` carries an array's value, gradient and Hessian with respect to all p parameters, by the
product and chain rules alone. The network is written down anew from the papers' formulas, so that
it checks `models.MLP.apply` as well as what is derived from it.
"""

from dataclasses import dataclass

import numpy as np

import flattest as ft


@dataclass(frozen=True)
class Jet:
    """value (…), gradient (…, p), hessian (…, p, p)."""

    value: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray

    def __add__(self, other):
        return Jet(
            self.value + other.value,
            self.gradient + other.gradient,
            self.hessian + other.hessian,
        )

    def __mul__(self, other):
        a, b = self, other
        cross = a.gradient[..., :, None] * b.gradient[..., None, :]
        return Jet(
            a.value * b.value,
            a.gradient * b.value[..., None] + b.gradient * a.value[..., None],
            a.hessian * b.value[..., None, None]
            + b.hessian * a.value[..., None, None]
            + cross
            + np.swapaxes(cross, -1, -2),
        )

    def __getitem__(self, index):
        return Jet(self.value[index], self.gradient[index], self.hessian[index])

    def apply(self, value, slope, curvature):
        """g(self) elementwise, given g, g′ and g″ at the value."""
        outer = self.gradient[..., :, None] * self.gradient[..., None, :]
        return Jet(
            value,
            slope[..., None] * self.gradient,
            slope[..., None, None] * self.hessian + curvature[..., None, None] * outer,
        )

    def power(self, exponent):
        t, a = self.value, exponent
        return self.apply(t**a, a * t ** (a - 1), a * (a - 1) * t ** (a - 2))

    def sum(self, axis):
        return Jet(
            self.value.sum(axis=axis),
            self.gradient.sum(axis=axis),
            self.hessian.sum(axis=axis),
        )


def _variables(params) -> dict[str, Jet]:
    """θ with unit gradients, names in the order given."""
    p = sum(np.size(v) for v in params.values())
    jets, start = {}, 0
    for name, array in params.items():
        value = np.asarray(array, float)
        gradient = np.eye(p)[start : start + value.size].reshape(*value.shape, p)
        jets[name] = Jet(value, gradient, np.zeros((*value.shape, p, p)))
        start += value.size
    return jets


def _constant(value, p) -> Jet:
    value = np.asarray(value, float)
    return Jet(value, np.zeros((*value.shape, p)), np.zeros((*value.shape, p, p)))


def outputs(model: ft.MLP, params, x) -> Jet:
    """f(x_i) with derivatives, x being the training inputs."""
    theta = _variables(params)
    p = theta["W1"].gradient.shape[-1]

    def sigma(h):
        s = model.sigma
        return h.apply(s.value(h.value), s.slope(h.value), s.curvature(h.value))

    h = (_constant(x, p)[:, None, :] * theta["W1"][None]).sum(axis=2)
    r = sigma(h + theta["b1"][None] if model.bias else h)
    if model.norm == "sim_bn":
        square = (r * r).sum(axis=0) * _constant(np.full(model.width, 1 / len(x)), p)
        alive = (square.value > 0).astype(float)
        square = square + _constant(1 - alive, p)
        r = r * square.power(-0.5)[None] * theta["gamma"][None]
    if model.norm == "sim_ln":
        r = _layer_normalized(r, model.epsilon)
    for layer in range(2, model.depth):
        r = sigma((r[:, None, :] * theta[f"W{layer}"][None]).sum(axis=2))
    f = (r * theta[f"W{model.depth}"][None]).sum(axis=1)
    return f + theta["b_out"] if model.output_bias else f


def _layer_normalized(r: Jet, epsilon: float) -> Jet:
    """r / max(‖r‖, ε), row by row."""
    square, p = (r * r).sum(axis=1), r.gradient.shape[-1]
    large = square.value > epsilon**2
    fixed = _constant(np.full(len(large), 1 / epsilon), p)
    # Rows below ε are set to 1 before the root, which 0 would not survive.
    free = (square + _constant(np.where(large, 0, 1 - square.value), p)).power(-0.5)
    inverse = Jet(*(_choose(large, a, b) for a, b in zip(_parts(free), _parts(fixed), strict=True)))
    return r * inverse[:, None]


def _parts(jet: Jet):
    return jet.value, jet.gradient, jet.hessian


def _choose(mask, a, b):
    return np.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b)


def hessian(f: Jet, data: ft.Dataset, loss="mse") -> np.ndarray:
    """∇²L from the outputs' jets, with ℓ′ and ℓ″ from the loss."""
    kind = ft.loss(loss)
    losses = f.apply(
        kind.value(f.value, data.y), kind.slope(f.value, data.y), kind.curvature(f.value, data.y)
    )
    return losses.hessian.mean(axis=0)
