"""∇²L at θ on a training set, as an operator: what every measure is a function of.

L = (1/n) Σ_i ℓ(f_i, y_i). With one output, u_i = ℓ′(f_i)/n and w_i = ℓ″(f_i)/n,
∇²L = Σ_i w_i ∇f_i ∇f_iᵀ + Σ_i u_i ∇²f_i; with several, J_iᵀ (∇²_f ℓ_i/n) J_i stands in the first
sum. That is the Gauss–Newton part G; the second, the residual part E, vanishes at interpolators.

Three makers: closed forms for our MLPs (`mlp`), JAX functions (`functions`) and PyTorch modules
(`modules`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from flattest.curvature.resolvent import Resolvent
from flattest.errors import FlattestError
from flattest.problem.randomness import generator
from flattest.rescaling.units import Structure

# glibc hands memory beyond a threshold back at every free, and faulting it in again costs more than
# the arithmetic on arrays of a few hundred KB. A freed block of 16 MB, never touched, raises that
# threshold for the process (mallopt(3), M_MMAP_THRESHOLD): a third of the Gram route's time.
np.empty(2_000_000)

ROWS_AT_ONCE = 32
"""Vectors that ∇²L is applied to together."""


@lru_cache(maxsize=4)
def probe(size: int) -> np.ndarray:
    """The same normal vector at every call, since a measure of one θ should not vary."""
    drawn = generator(0, "sharpness/probe").normal(size=size)
    drawn.setflags(write=False)
    return drawn


def split(v: np.ndarray, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Views into a vector, one of each shape, one after another."""
    views, start = {}, 0
    for name, shape in shapes.items():
        end = start + math.prod(shape)
        views[name] = v[start:end].reshape(shape)
        start = end
    return views


class Operator(ABC):
    """∇²L = G + E. Operators that do not split G off have G = 0, E = ∇²L and no Gram matrix.

    Vectors of R^p hold the parameters of `shapes` one after another.
    """

    shapes: Mapping[str, tuple[int, ...]]
    samples: int
    # Beyond this many rows the Gram matrix costs more than it saves.
    largest_gram: int = 1000

    @property
    @abstractmethod
    def structure(self) -> Structure:
        """Whether ∇²L's diagonal is that of its Gauss–Newton part, and which units rescale."""

    @property
    def size(self) -> int:
        """p, the number of parameters."""
        return sum(map(math.prod, self.shapes.values()))

    def by_name(self, v: np.ndarray) -> dict[str, np.ndarray]:
        """A vector of R^p by parameter."""
        return split(v, self.shapes)

    def as_params(self, v: np.ndarray) -> Any:
        """A vector of R^p in the shapes of θ."""
        return self.by_name(v)

    @abstractmethod
    def matmat(self, rows: np.ndarray) -> np.ndarray:
        """∇²L applied to each row."""

    def matvec(self, v: np.ndarray) -> np.ndarray:
        """∇²L v."""
        return self.matmat(v[None])[0]

    @abstractmethod
    def gauss_newton_diagonal(self) -> np.ndarray:
        """The diagonal of G, which is all of ∇²L's where `structure.exact`."""

    def gauss_newton_trace(self) -> dict[str, float] | None:
        """Tr G by parameter, where `structure.exact` and it costs less than G's diagonal."""
        return None

    def gauss_newton_shares(
        self,
        draws: int | None = None,
        rng: np.random.Generator | None = None,
        chosen: np.ndarray | None = None,
    ) -> np.ndarray:
        """The samples' shares of Tr G, (n, 1), or `draws` unbiased estimates of each, (n, draws),
        from random combinations of outputs; of the samples numbered in `chosen` only, in any order.
        """
        raise FlattestError("The Gauss–Newton trace by samples is for PyTorch modules.")

    def backward_passes(self) -> int | None:
        """How many one sample and output at a time takes, where changes of basis are looked for."""
        return None

    def residual_matmat(self, rows: np.ndarray) -> np.ndarray:
        """E applied to each row."""
        return self.matmat(rows)

    def residual_bound(self) -> float | None:
        """An upper bound of ‖E‖ where one costs less than a product."""
        return None

    def residual_size(self) -> float:
        """‖Ez‖ for a normal z: of the order of ‖E‖_F ≥ ‖E‖."""
        return float(np.linalg.norm(self.residual_matmat(probe(self.size)[None])))

    def gauss_newton_gram(self) -> np.ndarray:
        """A Aᵀ for G = Aᵀ A; empty where that matrix is not worth its cost."""
        return np.empty((0, 0))

    def lifted(self, c: np.ndarray) -> np.ndarray:
        """Aᵀ c."""
        raise NotImplementedError

    def resolvent(self) -> Resolvent | None:
        """(s − E)⁻¹ between the rows of A, where it costs less than a few products."""
        return None

    def residual_top(self) -> np.ndarray:
        """An eigenvector of E's largest eigenvalue, where there is a resolvent."""
        raise NotImplementedError

    def resolved(self, s: float, c: np.ndarray) -> np.ndarray:
        """(s − E)⁻¹ Aᵀ c."""
        raise NotImplementedError

    def closed_form(self) -> dict[str, float] | None:
        """Tr ∇²L by parameter, where a formula gives it sooner than the diagonal does."""
        return None

    @abstractmethod
    def mean_loss(self) -> float:
        """L(θ)."""

    def point(self) -> np.ndarray:
        """θ, a vector of R^p."""
        raise NotImplementedError

    def loss_at(self, theta: np.ndarray) -> float:
        """L at any θ."""
        raise NotImplementedError

    def gradient_at(self, theta: np.ndarray) -> np.ndarray:
        """∇L at any θ."""
        raise NotImplementedError

    def part(self, rows: np.ndarray) -> "Operator":
        """The operator of L_B, the mean over some of the samples, which are given by number."""
        raise NotImplementedError

    @property
    def parts(self) -> bool:
        """Whether L is a mean over samples, each of which stands for itself."""
        return True

    def gauss_newton_form(self, v: np.ndarray) -> float:
        """vᵀGv."""
        return float(v @ (self.matmat(v[None])[0] - self.residual_matmat(v[None])[0]))

    def gauss_newton_sum(self) -> float:
        """Tr G, also where `structure` is not exact."""
        per_layer = self.gauss_newton_trace()
        return float(
            self.gauss_newton_diagonal().sum() if per_layer is None else sum(per_layer.values())
        )

    @abstractmethod
    def outputs(self, factors: Mapping[str, np.ndarray] | None = None) -> np.ndarray:
        """f on all the data, (n, …), with every parameter multiplied by its factor."""

    def output_changes(self, factors: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
        """For each of these factors max |f(θ ⊙ factors) − f(θ)| over all the data."""
        f = self.outputs()
        return np.array([np.abs(self.outputs(by) - f).max() for by in factors])

    @abstractmethod
    def rescaled(self, factors: Mapping[str, np.ndarray]) -> Any:
        """The network as it was given, with every parameter multiplied by its factor."""
