"""λ_max(∇²L) between a lower and a proven upper bound, where systems with s − E are solved at once.

∇²L = AᵀA + E. For s > λ_max(E), by the Schur complement of s − E in [[s − E, Aᵀ], [A, 1]],

    λ_max(∇²L) < s   if and only if   K(s) = A (s − E)⁻¹ Aᵀ has all eigenvalues below 1,

an n × n question. K falls as s grows, since (s − E)⁻¹ does.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from flattest.errors import FlattestError

# Eigenvalues of K near 1 are known to this, more than LAPACK's error for a few hundred points.
_ROUNDING = 1e-14
# Beyond 4^±this s² would leave the range of float64.
_FAR = 100
# Newton's method takes a handful.
_MOST_STEPS = 200


@dataclass(frozen=True)
class Resolvent:
    """(s − E)⁻¹ between the rows of A, for two piecewise linear layers.

    E couples each W2_j with w_j = (W1, b1)_j only, by c_j = Σ_i u_i σ′(h_ij) x′_i: on either block
    its eigenvalues are ±γ_j, γ_j = ‖c_j‖, so that (s − E)⁻¹ = (1 + (sE + E²)/(s² − γ_j²))/s. With
    Z_ij = √w_i σ(h_ij) and B_ij = √w_i W2_j σ′(h_ij) c_j·x′_i that gives

        s K(s) = F + (sZ + B) diag(1/(s² − γ²)) (sZ + B)ᵀ,

    F being the part of AAᵀ of the first layer and of b_out, with √w on either side.
    """

    F: np.ndarray
    Z: np.ndarray
    B: np.ndarray
    gamma: np.ndarray

    @property
    def floor(self) -> float:
        """λ_max(E) ≤ λ_max(∇²L)."""
        return float(self.gamma.max())

    def divided(self, exponent: int) -> "Resolvent":
        """That of ∇²L/4^exponent."""
        F, Z, gamma = self.F / 4.0**exponent, self.Z / 2.0**exponent, self.gamma / 4.0**exponent
        return Resolvent(F, Z, self.B / 4.0**exponent / 2.0**exponent, gamma)

    def gauss_newton(self) -> np.ndarray:
        """AAᵀ."""
        G = self.Z @ self.Z.T
        G += self.F
        return G

    def lifted_quotient(self, c: np.ndarray, Gc: np.ndarray) -> float:
        """The Rayleigh quotient of Aᵀc for G = AAᵀ: (cᵀG²c + cᵀAEAᵀc) / cᵀGc; 0 for Aᵀc = 0."""
        square = c @ Gc
        return float((Gc @ Gc + 2 * (c @ self.Z) @ (c @ self.B)) / square) if square > 0 else 0.0

    def _weights(self, s: float) -> np.ndarray:
        return 1 / ((s - self.gamma) * (s + self.gamma))

    def gram(self, s: float) -> np.ndarray:
        """K(s)."""
        # A product with its own transpose takes half the operations; the weights are positive.
        # In place, since fresh memory of this size costs as much as filling it.
        P = s * self.Z
        P += self.B
        P *= np.sqrt(self._weights(s))
        K = P @ P.T
        K += self.F
        K /= s
        return K

    def applied(self, s: float, q: np.ndarray) -> tuple[np.ndarray, float]:
        """K(s) q and qᵀ A (s − E)⁻² Aᵀ q = −qᵀ K′(s) q."""
        z = q @ self.Z
        t = self._weights(s) * (s * z + q @ self.B)
        Kq = (self.F @ q + s * (self.Z @ t) + self.B @ t) / s
        return Kq, float(q @ Kq - 2 * (z - s * t) @ t) / s


@dataclass(frozen=True)
class Top:
    """low ≤ λ_max ≤ high. `low` is the Rayleigh quotient of v = (s − E)⁻¹Aᵀq, or E's own largest
    eigenvalue, where q is None; `residual` is ‖∇²L v − low v‖ for the unit vector along v."""

    low: float
    high: float
    s: float
    q: np.ndarray | None
    residual: float

    def multiplied(self, unit: float) -> "Top":
        residual = self.residual * unit
        return Top(self.low * unit, self.high * unit, self.s * unit, self.q, residual)


def enclose(resolvent: Resolvent, start: float, tol: float) -> Top:
    """λ_max(∇²L) to tol, relatively, from any guess.

    Let μ be K(s)'s largest eigenvalue, q its eigenvector and v = (s − E)⁻¹Aᵀq. Then
    ∇²L v = s v − (1 − μ) Aᵀq, so that v has the Rayleigh quotient s − μ(1 − μ)/‖v‖² ≤ λ_max, which
    is the next s. From below it climbs at least as fast as Newton's method on the convex μ(s) = 1.
    Two proofs of high: μ < 1 at s = high; or, without another n × n matrix, `_below` for
    high > s. Where λ_max is E's own, s stops just above it.
    """
    exponent = int(np.frexp(max(start, resolvent.floor))[1]) // 2
    if abs(exponent) > _FAR:
        top = _enclosed(resolvent.divided(exponent), start / 4.0**exponent, tol)
        return top.multiplied(4.0**exponent)
    return _enclosed(resolvent, start, tol)


def _enclosed(resolvent: Resolvent, start: float, tol: float) -> Top:
    tol = max(tol, 16 * _ROUNDING)
    found = Top(resolvent.floor, np.inf, resolvent.floor, None, 0.0)
    s = max(start, resolvent.floor * (1 + tol / 4))
    for _ in range(_MOST_STEPS):
        values, vectors = _top_two(resolvent.gram(s))
        q, mu, second = vectors[:, -1], values[-1], values[0] if len(values) > 1 else 0.0
        high = s if mu <= 1 - _ROUNDING else np.inf
        found = max(found, _quotient(resolvent, s, q, mu), key=lambda top: top.low)
        above = found.low * (1 + tol / 2)
        if above >= s and _below(resolvent, above, q, second):
            high = above
        if high <= found.low * (1 + tol):
            return Top(found.low, high, found.s, found.q, found.residual)
        s = found.low * (1 + tol / 4)
    raise FlattestError(f"λ_max was not enclosed to tol = {tol:g}; take a larger tol.")


def _top_two(K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    last = len(K) - 1
    return scipy.linalg.eigh(K, subset_by_index=[max(last - 1, 0), last], check_finite=False)


def _quotient(resolvent: Resolvent, s: float, q: np.ndarray, mu: float) -> Top:
    """‖∇²L v − θ v‖² = (1 − μ)² (qᵀAAᵀq − μ²/‖v‖²) for the Rayleigh quotient θ of v."""
    square = resolvent.applied(s, q)[1]
    first, second = resolvent.F @ q, q @ resolvent.Z
    rest = max(q @ first + second @ second - mu**2 / square, 0.0)
    residual = abs(1 - mu) * np.sqrt(rest / square)
    return Top(float(s - mu * (1 - mu) / square), np.inf, s, q, float(residual))


def _below(resolvent: Resolvent, high: float, q: np.ndarray, second: float) -> bool:
    """Whether K(high) < 1, by an eigenvector q of K(s), s ≤ high, and K(s)'s second eigenvalue.

    Across q, K(high) ≤ K(s) ≤ second < 1. With a = 1 − qᵀK(high)q and b the part of K(high)q across
    q, (αq + y)ᵀ(1 − K(high))(αq + y) ≥ aα² − 2|α|b‖y‖ + (1 − second)‖y‖² > 0 if a(1 − second) > b².
    """
    Kq, _ = resolvent.applied(high, q)
    along = q @ Kq
    a, b = 1 - along - _ROUNDING, np.linalg.norm(Kq - along * q) + _ROUNDING
    return a > 0 and a * (1 - second - _ROUNDING) > b**2
