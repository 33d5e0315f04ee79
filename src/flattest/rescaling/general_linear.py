"""The least Gauss–Newton trace over the GL(h) symmetry of two blocks of weights.

Where f depends on U (a × h) and V (b × h) through U Vᵀ only (queries and keys of a head, values and
outputs, two linear layers in a row), (U, V) → (U A, V A⁻ᵀ) leaves f as it is for every A in GL(h),
and gradients become G_U A⁻ᵀ and G_V A. With N = Σ G_Uᵀ G_U and M = Σ G_Vᵀ G_V over samples and
columns, the two blocks' share of Tr G is tr(N P⁻¹) + tr(M P), P = A Aᵀ.
"""

from dataclasses import dataclass

import numpy as np

# Below this part of the largest, an eigenvalue is taken for 0.
_SINGULAR = 1e-13


@dataclass(frozen=True)
class Least:
    """`value` = 2 ‖M^{1/2} N^{1/2}‖_*, the infimum over GL(h), and A, at which it is `attained`
    unless M or N is singular.

    Proof. With M = L Lᵀ, N = K Kᵀ, LᵀK = Y Σ Zᵀ its singular value decomposition and R = Z Yᵀ,
    tr(N P⁻¹) + tr(M P) = ‖A⁻¹K‖² + ‖LᵀA‖² ≥ 2 tr(LᵀA A⁻¹K R) = 2 tr Σ for every A, R being
    orthogonal. At A = L⁻ᵀ Y Σ^{1/2} both terms are tr Σ.
    """

    value: float
    attained: float
    A: np.ndarray


def least(N: np.ndarray, M: np.ndarray) -> Least:
    """The least of tr(N P⁻¹) + tr(M P) over positive definite P = A Aᵀ."""
    value = 2 * float(np.linalg.svd(_root(M).T @ _root(N), compute_uv=False).sum())
    L, K = np.linalg.cholesky(_regular(M)), np.linalg.cholesky(_regular(N))
    Y, sizes, _ = np.linalg.svd(L.T @ K)
    A = np.linalg.solve(L.T, Y * np.sqrt(sizes))
    backward = np.linalg.solve(A, _root(N))
    attained = float(np.sum(backward**2) + np.sum((_root(M).T @ A) ** 2))
    return Least(value, attained, A)


def _root(S: np.ndarray) -> np.ndarray:
    """A factor F with F Fᵀ = S, also for singular S."""
    values, vectors = np.linalg.eigh(S)
    return vectors * np.sqrt(np.clip(values, 0, None))


def _regular(S: np.ndarray) -> np.ndarray:
    """S, made positive definite by the least that rounding bears, where it is singular."""
    values = np.linalg.eigvalsh(S)
    if values[0] > _SINGULAR * values[-1]:
        return S
    return S + np.eye(len(S)) * (1e-10 * values[-1] or 1.0)
