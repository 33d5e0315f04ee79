"""Derivatives of the normalized two-layer networks f = Σ_j c_j u_j + b_out, u = r / ν.

r = σ(W1 x + b1). Sim-BN divides by ν_j = s_j, the root mean square of r_j over the training
points, and has c = W2 ⊙ γ; Sim-LN divides by ν = max(‖r‖, ε) and has c = W2. For both,
∂ν = ⟨u, ∂r⟩ with an inner product over points (Sim-BN: mean) or over neurons (Sim-LN: sum, and 0
where ε is the larger), so that products with ∇²L are the same code.
"""

from abc import abstractmethod
from functools import cached_property

import numpy as np

from flattest.curvature.mlp import NetworkHessian, row_dots
from flattest.curvature.plain import PlainHessian

# Relative to its terms, a difference this small is rounding error.
_ROUNDING = 8 * np.finfo(float).eps
# ‖x‖² − (x·v)² keeps ten digits where it is more than this share of ‖x‖².
_CANCELLED = 1e-6


def _norms(r: np.ndarray, axis: int) -> np.ndarray:
    """√Σ r² along an axis, which is kept; the squares stay in range, by powers of 2."""
    largest = np.abs(r).max(axis=axis, keepdims=True)
    exponents = np.frexp(largest)[1]
    scaled = np.ldexp(r, -exponents)
    squares = np.einsum("ij,ij->j" if axis == 0 else "ij,ij->i", scaled, scaled)
    return np.ldexp(np.sqrt(np.expand_dims(squares, axis)), exponents)


class NormalizedHessian(NetworkHessian):
    """What Sim-BN and Sim-LN share: the tangent of the backward pass."""

    @property
    @abstractmethod
    def nu(self) -> np.ndarray:
        """ν, shaped to divide r."""

    @cached_property
    def h(self) -> np.ndarray:
        return self.x @ self.theta["first"].T

    @cached_property
    def r(self) -> np.ndarray:
        return self.sigma("value", self.h)

    @cached_property
    def normal(self) -> np.ndarray:
        """u = r/ν."""
        return self.r / self.nu

    @cached_property
    def c(self) -> np.ndarray:
        return self.last * self.theta.get("gamma", 1.0)

    def _forward(self):
        return self.normal @ self.c + self.offset

    @abstractmethod
    def _inner(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """⟨a, b⟩ of ∂ν = ⟨u, ∂r⟩, shaped like ν."""

    @cached_property
    def slope(self) -> np.ndarray:
        return self.sigma("slope", self.h)

    @property
    def first_slopes(self):
        return self.slope

    @cached_property
    def curvature(self) -> np.ndarray | None:
        """σ″(h); None where σ is piecewise linear."""
        return None if self.model.sigma.piecewise_linear else self.sigma("curvature", self.h)

    def _through_scale(self, g: np.ndarray) -> np.ndarray:
        """The derivative in r, given the derivative g in u = r/ν."""
        return (g - self.normal * self._inner(self.normal, g)) / self.nu

    def vjp(self, u):
        by_h, by_c = self._through_scale(np.outer(u, self.c)) * self.slope, u @ self.normal
        return self._flat(by_h, by_c * self.theta.get("gamma", 1.0), by_c * self.last, u.sum())

    def _flat(self, by_h, by_W2, by_gamma, by_offset) -> np.ndarray:
        """A gradient's blocks in one vector."""
        blocks = {"first": by_h.T @ self.x, "gamma": by_gamma, "W2": by_W2, "b_out": by_offset}
        return np.concatenate([np.ravel(blocks[name]) for name in self.theta])

    def product(self, v, w):
        # R-operator (Pearlmutter 1994): R{·} is the derivative of · in direction v.
        direction, normal, nu = self.blocks(v), self.normal, self.nu
        gamma, Rgamma = self.theta.get("gamma", 1.0), direction.get("gamma", 0.0)
        Rh = self.x @ direction["first"].T
        Rr = self.slope * Rh
        Rnu = self._inner(normal, Rr)
        Rnormal = (Rr - normal * Rnu) / nu
        Rc = direction["W2"] * gamma + self.last * Rgamma
        Ru = w * (Rnormal @ self.c + normal @ Rc + direction.get("b_out", 0.0))
        g, inner, by_r, by_c = self._at_rest
        Rg = np.outer(Ru, self.c) + np.outer(self.u, Rc)
        Rinner = self._inner(Rnormal, g) + self._inner(normal, Rg)
        Rby_r = (Rg - Rnormal * inner - normal * Rinner - by_r * Rnu) / nu
        Rby_c = self.u @ Rnormal + Ru @ normal
        Rby_h = Rby_r * self.slope
        if self.curvature is not None:
            Rby_h += by_r * self.curvature * Rh
        by_gamma = Rby_c * self.last + by_c * direction["W2"]
        return self._flat(Rby_h, Rby_c * gamma + by_c * Rgamma, by_gamma, Ru.sum())

    @cached_property
    def _at_rest(self):
        """The backward pass of L itself: derivatives in u, ⟨u, ·⟩ of it, in r and in c."""
        g = np.outer(self.u, self.c)
        return g, self._inner(self.normal, g), self._through_scale(g), self.u @ self.normal


class SimLNHessian(NormalizedHessian):
    """f = W2 · r / max(‖r‖, ε); with κ = 1 where ‖r‖ > ε and 0 elsewhere, f₀ = W2 · u,

    ∂f/∂r_j = (W2_j − κ f₀ u_j)/ν  and  ∂²f/∂r_j² = κ (3 f₀ u_j² − 2 W2_j u_j − f₀)/ν².
    """

    @cached_property
    def _norm(self) -> np.ndarray:
        return _norms(self.r, axis=1)

    @cached_property
    def kappa(self) -> np.ndarray:
        return self._norm > self.model.epsilon

    @cached_property
    def nu(self):
        return np.maximum(self._norm, self.model.epsilon)

    def _inner(self, a, b):
        return row_dots(a, b)[:, None] * self.kappa

    @cached_property
    def by_r(self) -> np.ndarray:
        return self._through_scale(np.broadcast_to(self.c, self.r.shape))

    def squares(self):
        delta = self.by_r * self.slope
        delta_square = row_dots(delta, delta)
        squares = {
            name: delta_square * row_dots(x, x) for name, x in self.first_layer_inputs.items()
        }
        return squares | {"W2": row_dots(self.normal, self.normal)}

    def laplacians(self):
        f0 = (self.f - self.offset)[:, None]
        second = 3 * f0 * self.normal**2 - 2 * self.c * self.normal - f0
        trace = row_dots(self.slope**2, self.kappa * second / self.nu**2)
        if self.curvature is not None:
            trace += row_dots(self.curvature, self.by_r)
        return {name: trace * row_dots(x, x) for name, x in self.first_layer_inputs.items()}

    def gram(self):
        delta = self.by_r * self.slope
        first = (delta @ delta.T) * (self.x @ self.x.T)
        return first + self.normal @ self.normal.T + float(self.model.output_bias)


class SimBNHessian(NormalizedHessian):
    """f = Σ_j c_j u_j, c = W2 ⊙ γ, u = r/s, s_j² = (1/n) Σ_k r_j(x_k)², data = training set.

    With w_j = (W1, b1)_j and v_j = Σ_k u_kj σ′_kj x′_k the statistics' share of the gradient,
    ∂u_ij/∂w_j = D_ij/s_j, D_ij = σ′_ij x′_i − u_ij v_j/n,  and, since Σ_k u_kj² = n,
    Tr ∂²u_ij/∂w_j² = σ″_ij ‖x′_i‖²/s_j − (u_ij/n) Σ_k ‖x′_k‖² r_kj σ″_kj/s_j²
                      − ((2/n) D_ij·v_j + (u_ij/n) Σ_k ‖D_kj‖²)/s_j².
    A neuron that is active at one point only has D = 0 there. Since s_j may be small, what remains
    of such differences counts: D is split along and across v_j (`_differences`).
    A neuron that is 0 on all the training set has s_j = 1 and u_j = 0.
    """

    @cached_property
    def nu(self):
        norms = _norms(self.r, axis=0)[0]
        return np.where(norms == 0, 1.0, norms / np.sqrt(self.data.n))

    def _inner(self, a, b):
        return np.einsum("ij,ij->j", a, b) / self.data.n

    def _shares(self, x: np.ndarray) -> np.ndarray:
        """v_j for the inputs x, a column (or all) of x′: (m, ·)."""
        return (self.normal * self.slope).T @ x

    @cached_property
    def direct(self) -> np.ndarray:
        """c_j σ′_ij / s_j, the coefficient of x′_i in ∂f_i/∂w_j."""
        return self.slope * (self.c / self.nu)

    @cached_property
    def indirect(self) -> np.ndarray:
        """c_j u_ij / (n s_j), minus the coefficient of v_j in ∂f_i/∂w_j."""
        return self.normal * (self.c / self.nu / self.data.n)

    def squares(self):
        squares = {name: self._first_square(x) for name, x in self.first_layer_inputs.items()}
        u2 = self.normal**2
        return squares | {"gamma": u2 @ self.last**2, "W2": u2 @ self.theta["gamma"] ** 2}

    def _differences(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """‖D_ij‖², D_ij·v_j/‖v_j‖ and ‖v_j‖ for the inputs x, a column (or all) of x′."""
        v = self._shares(x)
        size = np.sqrt(row_dots(v, v))
        direction = v / np.where(size > 0, size, 1.0)[:, None]
        projected = x @ direction.T
        direct, indirect = self.slope * projected, self.normal * (size / self.data.n)
        along = direct - indirect
        along[np.abs(along) <= _ROUNDING * (np.abs(direct) + np.abs(indirect))] = 0.0
        across = _squares_across(x, direction, projected)
        return self.slope**2 * across + along**2, along, size

    def _first_square(self, x):
        squares, _, _ = self._differences(x)
        return squares @ (self.c / self.nu) ** 2

    def laplacians(self):
        return {name: self._first_laplacian(x) for name, x in self.first_layer_inputs.items()}

    def _first_laplacian(self, x):
        squares, along, size = self._differences(x)
        weight = self.c / self.nu / self.nu / self.data.n
        own = squares.sum(axis=0)
        laplacian = -(2 * along @ (weight * size) + self.normal @ (weight * own))
        if self.curvature is not None:
            length = row_dots(x, x)
            laplacian -= self.normal @ (weight * (length @ (self.r * self.curvature)))
            laplacian += length * (self.curvature @ (self.c / self.nu))
        return laplacian

    def gram(self):
        v = self._shares(self.x)
        cross = (self.direct * (self.x @ v.T)) @ self.indirect.T
        gram = (self.x @ self.x.T) * (self.direct @ self.direct.T) - cross - cross.T
        gram += (self.indirect * row_dots(v, v)) @ self.indirect.T
        gram += (self.normal * (self.last**2 + self.theta["gamma"] ** 2)) @ self.normal.T
        return gram + float(self.model.output_bias)


def _squares_across(x: np.ndarray, direction: np.ndarray, projected: np.ndarray) -> np.ndarray:
    """‖x_i − (x_i·v_j) v_j‖² for unit vectors v_j (rows; 0 counts as one) and x_i·v_j."""
    if x.shape[1] == 1:
        return x**2 * (direction == 0).T
    lengths = row_dots(x, x)[:, None]
    across = lengths - projected**2
    i, j = np.nonzero(across < _CANCELLED * lengths)
    rest = x[i] - projected[i, j][:, None] * direction[j]
    across[i, j] = row_dots(rest, rest)
    return across


OPERATORS: dict[str | None, type[NetworkHessian]] = {
    None: PlainHessian,
    "sim_bn": SimBNHessian,
    "sim_ln": SimLNHessian,
}
