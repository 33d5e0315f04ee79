"""Derivatives of W_D σ(… W2 σ(W1 x + b1)) + b_out, depth D ≥ 2, layer by layer.

h_l = W_l z_{l−1}, z_l = σ(h_l), z_0 = x′, f = W_D · z_{D−1} + b_out. Per sample, with
B_l = ∂f/∂z_l and δ_l = ∂f/∂h_l = σ′(h_l) ⊙ B_l:  ‖∂f/∂W_l‖² = ‖δ_l‖² ‖z_{l−1}‖²  and
Tr ∂²f/∂W_l² = ‖z_{l−1}‖² Tr ∂²f/∂h_l².
"""

from functools import cached_property

import numpy as np

from flattest.curvature.mlp import NetworkHessian, row_dots
from flattest.curvature.resolvent import Resolvent


class PlainHessian(NetworkHessian):
    """Lists are indexed by hidden layer: position 0 is layer 1."""

    @property
    def weights(self) -> list[np.ndarray]:
        return [self.theta["first"], *(self.theta[f"W{l}"] for l in range(2, self.model.depth))]

    @cached_property
    def _layers(self) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """h_l, z_l and, where σ(t) = σ′(t) t, what is computed for both, σ′(h_l)."""
        sigma, h, z, slopes = self.model.sigma, list[np.ndarray](), [self.x], list[np.ndarray]()
        linear = sigma.piecewise_linear and sigma.homogeneity == 1
        for W in self.weights:
            h.append(z[-1] @ W.T)
            if linear:
                slopes.append(self.sigma("slope", h[-1]))
            z.append(h[-1] * slopes[-1] if linear else self.sigma("value", h[-1]))
        return h, z, slopes

    @property
    def h(self) -> list[np.ndarray]:
        return self._layers[0]

    @property
    def z(self) -> list[np.ndarray]:
        return self._layers[1]

    def _forward(self):
        return self.z[-1] @ self.last + self.offset

    @cached_property
    def slopes(self) -> list[np.ndarray]:
        return self._layers[2] or [self.sigma("slope", h) for h in self.h]

    @property
    def first_slopes(self):
        return self.slopes[0]

    @cached_property
    def sensitivities(self) -> list[np.ndarray]:
        """B_l = ∂f/∂z_l, (n, m); constant in the last hidden layer."""
        B = [np.broadcast_to(self.last, self.h[-1].shape)]
        for W, slope in zip(self.weights[:0:-1], self.slopes[:0:-1], strict=True):
            B.insert(0, (B[0] * slope) @ W)
        return B

    @cached_property
    def deltas(self) -> list[np.ndarray]:
        """δ_l = ∂f/∂h_l, (n, m)."""
        return [B * slope for B, slope in zip(self.sensitivities, self.slopes, strict=True)]

    @cached_property
    def bends(self) -> list[np.ndarray]:
        """σ″(h_l) ⊙ B_l, (n, m); an empty list where σ is piecewise linear and they are 0."""
        if self.model.sigma.piecewise_linear:
            return []
        curvatures = [self.sigma("curvature", h) for h in self.h]
        return [c * B for c, B in zip(curvatures, self.sensitivities, strict=True)]

    def squares(self):
        delta = [row_dots(d, d) for d in self.deltas]
        squares = {name: delta[0] * row_dots(x, x) for name, x in self.first_layer_inputs.items()}
        for layer, (d, z) in enumerate(zip(delta[1:], self.z[1:-1], strict=True), start=2):
            squares[f"W{layer}"] = d * row_dots(z, z)
        return squares | {f"W{self.model.depth}": row_dots(self.z[-1], self.z[-1])}

    def laplacians(self):
        if self.model.sigma.piecewise_linear:
            return {}
        traces = self._curvature_traces()
        laplacians = {
            name: traces[0] * row_dots(x, x) for name, x in self.first_layer_inputs.items()
        }
        for layer, (t, z) in enumerate(zip(traces[1:], self.z[1:-1], strict=True), start=2):
            laplacians[f"W{layer}"] = t * row_dots(z, z)
        return laplacians

    def _curvature_traces(self) -> list[np.ndarray]:
        """Tr ∂²f/∂h_l² for each hidden layer, (n,).

        ∂²f/∂h_l² = diag(σ′_l) W_{l+1}ᵀ (∂²f/∂h_{l+1}²) W_{l+1} diag(σ′_l) + diag(σ″_l ⊙ B_l) is
        diagonal in the last hidden layer, so that the one below needs no m × m matrix either;
        deeper networks take one for each sample.
        """
        traces = [bend.sum(axis=1) for bend in self.bends]
        if len(traces) >= 2:
            traces[-2] += row_dots(self.bends[-1] @ self.weights[-1] ** 2, self.slopes[-2] ** 2)
        for i in range(len(self.f) if len(traces) > 2 else 0):
            H = np.diag(self.bends[-1][i])
            for l in range(len(traces) - 2, -1, -1):
                J = self.weights[l + 1] * self.slopes[l][i]
                H = J.T @ H @ J + np.diag(self.bends[l][i])
                traces[l][i] = np.trace(H)
        return traces

    def gram(self):
        gram = self.z[-1] @ self.z[-1].T + float(self.model.output_bias)
        for delta, z in zip(self.deltas, self.z[:-1], strict=True):
            gram += (delta @ delta.T) * (z @ z.T)
        return gram

    def vjp(self, u):
        return self._pulled_back(u, self.deltas, self.z)

    def gauss_newton_diagonal(self):
        # Per sample, the squared gradient in W_l is (δ_l ⊙ δ_l)(z_{l−1} ⊙ z_{l−1})ᵀ.
        return self._pulled_back(self.w, [d**2 for d in self.deltas], [z**2 for z in self.z])

    def _pulled_back(self, u, deltas, zs) -> np.ndarray:
        """Σ_i u_i (δ_l z_{l−1}ᵀ), layer by layer."""
        out = np.empty(self.size)
        grads = self.blocks(out)
        for name, delta, z in zip(self.theta, deltas, zs[:-1], strict=False):
            np.matmul(delta.T, u[:, None] * z, out=grads[name])
        grads[f"W{self.model.depth}"][:] = u @ zs[-1]
        if self.model.output_bias:
            grads["b_out"][...] = u.sum()
        return out

    @cached_property
    def _weighted(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """u_i δ_l and u_i σ″_l ⊙ B_l, shared by all products."""
        u = self.u[:, None]
        return [u * delta for delta in self.deltas], [u * bend for bend in self.bends]

    def _tangent(self, l: int, Rh: np.ndarray) -> np.ndarray:
        """R z_l = σ′_l ⊙ R h_l, in place of R h_l where no σ″ will ask for that."""
        return np.multiply(self.slopes[l], Rh, out=None if self.bends else Rh)

    @property
    def _couples_only(self) -> bool:
        """Whether E couples each W2_j with (W1_j, b1_j) and is 0 elsewhere."""
        return self.model.depth == 2 and not self.bends

    @cached_property
    def _couplings(self) -> tuple[np.ndarray, np.ndarray]:
        """c_j = Σ_i u_i σ′(h_ij) x′_i, by which E couples the two, and ‖c_j‖."""
        c = self.slopes[0].T @ (self.u[:, None] * self.x)
        return c, np.sqrt(row_dots(c, c))

    def residual_bound(self):
        return float(self._couplings[1].max()) if self._couples_only else super().residual_bound()

    def resolvent(self):
        if not self._couples_only or self.data.n > self.largest_gram:
            return None
        c, gamma = self._couplings
        root = np.sqrt(self.w)[:, None]
        delta = root * self.deltas[0]
        F = (delta @ delta.T) * (self.x @ self.x.T)
        if self.model.output_bias:
            F += root * root.T
        B = self.x @ c.T
        B *= delta
        return Resolvent(F, root * self.z[-1], B, gamma)

    def residual_top(self):
        v = np.zeros(self.size)
        blocks, (c, gamma) = self.blocks(v), self._couplings
        j = int(np.argmax(gamma))
        blocks[f"W{self.model.depth}"][j] = gamma[j]
        blocks["first"][j] = c[j]
        return v

    def resolved(self, s, c):
        # On the block of neuron j, (s − E)⁻¹ = (1 + (E/s + E²/s²)/(1 − γ_j²/s²))/s.
        v = self.lifted(c)
        blocks, (coupling, gamma) = self.blocks(v), self._couplings
        first, last = blocks["first"], blocks[f"W{self.model.depth}"]
        k, ratio = coupling / s, gamma / s
        along = row_dots(first, k)
        weight = 1 / ((1 - ratio) * (1 + ratio))
        first += (weight * (last + along))[:, None] * k
        last += weight * (along + ratio**2 * last)
        return v / s

    def product(self, v, w):
        # R-operator (Pearlmutter 1994): the tangent of the backward pass in direction v.
        direction, out = self.blocks(v), np.empty(self.size)
        grads, names = self.blocks(out), list(self.theta)
        top = f"W{self.model.depth}"
        Rh = [self.x @ direction["first"].T]
        Rz = [self._tangent(0, Rh[0])]
        for l in range(1, len(self.weights)):
            Rh.append(Rz[-1] @ self.weights[l].T + self.z[l] @ direction[names[l]].T)
            Rz.append(self._tangent(l, Rh[-1]))
        Rf = Rz[-1] @ self.last + self.z[-1] @ direction[top] + direction.get("b_out", 0.0)
        Ru = w * Rf
        grads[top][:] = self.u @ Rz[-1] + Ru @ self.z[-1]
        if self.model.output_bias:
            grads["b_out"][...] = Ru.sum()
        RB = np.stack([Ru, self.u], axis=1) @ np.stack([self.last, direction[top]])
        for l in range(len(self.weights) - 1, -1, -1):
            Rdelta = np.multiply(RB, self.slopes[l], out=RB)
            if self.bends:
                Rdelta += self._weighted[1][l] * Rh[l]
            np.matmul(Rdelta.T, self.z[l], out=grads[names[l]])
            if l > 0:
                delta = self._weighted[0][l]
                grads[names[l]] += delta.T @ Rz[l - 1]
                RB = Rdelta @ self.weights[l] + delta @ direction[names[l]]
        return out
