"""∇²L at θ on a training set, as an operator.

With u_i = ℓ′(f_i)/n and w_i = ℓ″(f_i)/n,  ∇²L = Σ_i w_i ∇f_i ∇f_iᵀ + Σ_i u_i ∇²f_i.
The first sum is the Gauss–Newton part; the second, the residual part, vanishes at interpolators.
"""

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any

import numpy as np

from flattest.problem.data import Dataset
from flattest.problem.randomness import generator

# Beyond this many points the n × n Gram matrix costs more than it saves.
LARGEST_GRAM = 1000

# glibc hands memory beyond a threshold back at every free, and faulting it in again costs more than
# the arithmetic on arrays of a few hundred KB. A freed block of 16 MB, never touched, raises that
# threshold for the process (mallopt(3), M_MMAP_THRESHOLD): a third of the Gram route's time.
np.empty(2_000_000)


@lru_cache(maxsize=4)
def probe(size: int) -> np.ndarray:
    """The same normal vector at every call, since a measure of one θ should not vary."""
    drawn = generator(0, "sharpness/probe").normal(size=size)
    drawn.setflags(write=False)
    return drawn


class Hessian(ABC):
    """What the measures ask of a network: f, u and w at θ, and products with the two parts."""

    data: Dataset
    f: np.ndarray
    u: np.ndarray
    w: np.ndarray

    @property
    @abstractmethod
    def size(self) -> int:
        """p, the number of parameters."""

    @abstractmethod
    def as_params(self, v: np.ndarray) -> dict[str, Any]:
        """A vector of R^p in the shapes of θ."""

    @property
    def affords_gram(self) -> bool:
        """Whether `gram` is worth its cost."""
        return self.data.n <= LARGEST_GRAM

    @abstractmethod
    def gram(self) -> np.ndarray:
        """∇f_i · ∇f_k, (n, n)."""

    @abstractmethod
    def vjp(self, u: np.ndarray) -> np.ndarray:
        """Σ_i u_i ∇f_i."""

    @abstractmethod
    def product(self, v: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Σ_i w_i ∇f_i ∇f_iᵀ v + Σ_i u_i ∇²f_i v, with w in place of ℓ″/n."""

    def matvec(self, v: np.ndarray) -> np.ndarray:
        """∇²L v."""
        return self.product(v, self.w)

    def residual_matvec(self, v: np.ndarray) -> np.ndarray:
        """Σ_i u_i ∇²f_i v."""
        return self.product(v, np.zeros_like(self.w))

    def residual_bound(self) -> float | None:
        """An upper bound of ‖E‖, E = Σ_i u_i ∇²f_i, where one costs less than a product."""
        return None if self.u.any() else 0.0

    def residual_size(self) -> float:
        """‖Ez‖ for a normal z: of the order of ‖E‖_F ≥ ‖E‖."""
        return float(np.linalg.norm(self.residual_matvec(probe(self.size))))

    def matmat(self, rows: np.ndarray) -> np.ndarray:
        """∇²L applied to each row."""
        return np.stack([self.matvec(row) for row in rows])
