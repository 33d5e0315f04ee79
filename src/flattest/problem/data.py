"""Distributions: seed → Dataset, and their population (exact where the support is small)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from flattest.errors import FlattestError, require_known
from flattest.files import read_arrays
from flattest.problem.activations import activation
from flattest.problem.checks import check_count, finite_array
from flattest.problem.randomness import generator

LARGEST_ENUMERATION = 2**20
_ROWS_AT_ONCE = 2**14


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training inputs x (n, d) and labels y (n,), with the distribution they came from, if any."""

    x: np.ndarray
    y: np.ndarray
    distribution: "Distribution | None" = field(default=None)

    def __post_init__(self):
        x, y = finite_array("x", self.x).copy(), finite_array("y", self.y).copy()
        if x.ndim != 2 or y.ndim != 1 or len(x) != len(y):
            raise FlattestError(f"x must be (n, d) and y (n,), not {x.shape} and {y.shape}.")
        if x.size == 0:
            raise FlattestError("The dataset is empty; it needs at least one point and one input.")
        for name, array in {"x": x, "y": y}.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def n(self) -> int:
        return self.x.shape[0]

    @property
    def d(self) -> int:
        return self.x.shape[1]

    @classmethod
    def load(cls, path: str | Path) -> "Dataset":
        """The arrays x and y of an .npz file; pickled contents are refused."""
        found = read_arrays(path, "x", "y")
        return cls(found["x"], found["y"])


def require_dataset(data: Any) -> None:
    """Raises unless `data` are a Dataset."""
    if not isinstance(data, Dataset):
        raise FlattestError(
            f"Data are given as a Dataset, not as a {type(data).__name__}: flattest.Dataset(x, y)."
        )


@dataclass(frozen=True)
class Population:
    """Points that stand for a distribution: its whole support (`exact`) or a fresh sample."""

    x: np.ndarray
    y: np.ndarray
    exact: bool


@dataclass(frozen=True)
class Estimate:
    """A mean over a population with its standard error, 0 where the support was enumerated."""

    value: float
    stderr: float
    exact: bool

    def __float__(self) -> float:
        return self.value


class Distribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A law of (x, y). `draw` gives training sets, `population` what errors are measured on."""

    d: int

    least_d: ClassVar[int] = 1

    def __post_init__(self):
        d = check_count(f"{type(self).__name__}'s d", self.d, self.least_d)
        msgspec.structs.force_setattr(self, "d", d)  # NumPy's cannot be written to a spec

    def draw(self, n: int, seed: int) -> Dataset:
        """n training points, i.i.d. unless the distribution says otherwise."""
        check_count("n", n)
        return Dataset(*self.training_points(n, seed), self)

    def training_points(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """What `draw` makes a dataset of."""
        return self.sample(generator(seed, "data"), n)

    def population(self, size: int = 10_000, seed: int = 0) -> Population:
        """The whole support where it is finite with at most 2^20 points, else a fresh sample."""
        check_count("size", size)
        return Population(*self.sample(generator(seed, "population"), size), exact=False)

    def sample(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """n i.i.d. draws of (x, y)."""
        raise NotImplementedError


def _with_xor_labels(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x, x[:, 0] * x[:, 1]


def hypercube(d: int) -> np.ndarray:
    """All 2^d points of {−1, 1}^d."""
    bits = np.arange(2**d)[:, None] >> np.arange(d)[::-1]
    return 1.0 - 2.0 * (bits & 1)


class Xor(Distribution, frozen=True, tag="xor"):
    """x uniform on {−1, 1}^d, y = x[1]x[2] (wen2023, section 2).

    With `distinct`, a training set has no point twice.
    """

    distinct: bool = False
    least_d: ClassVar[int] = 2

    def sample(self, rng, n):
        return _with_xor_labels(1.0 - 2.0 * rng.integers(0, 2, (n, self.d)))

    def training_points(self, n, seed):
        if not self.distinct:
            return super().training_points(n, seed)
        if n > 2**self.d:
            raise FlattestError(f"{{−1, 1}}^{self.d} has only {2**self.d} points, fewer than {n}.")
        return _with_xor_labels(_distinct_signs(generator(seed, "data"), n, self.d))

    def population(self, size: int = 10_000, seed: int = 0) -> Population:
        if 2**self.d > LARGEST_ENUMERATION:
            return super().population(size, seed)
        return Population(*_with_xor_labels(hypercube(self.d)), exact=True)


class CompleteXor(Xor, frozen=True, tag="complete_xor"):
    """Training sets that meet Condition 1 of wen2023; the population is that of xor.

    All four sign patterns of the first two coordinates with every tail s ∈ S ⊂ {−1, 1}^{d−2},
    where S − S spans rank d − 2. So n = 4|S| ≥ 4(d − 1).
    """

    least_d: ClassVar[int] = 3

    def training_points(self, n, seed):
        if n % 4 or n < 4 * (self.d - 1) or n // 4 > 2 ** (self.d - 2):
            raise FlattestError(
                f"Condition 1 at d = {self.d} needs n to be a multiple of 4 from "
                f"{4 * (self.d - 1)} to {4 * 2 ** (self.d - 2)}, not {n}."
            )
        tails = _spanning_tails(n // 4, self.d, seed)
        heads = np.repeat(hypercube(2), len(tails), axis=0)
        return _with_xor_labels(np.hstack([heads, np.tile(tails, (4, 1))]))


def _spanning_tails(count: int, d: int, seed: int) -> np.ndarray:
    """S: distinct tails, drawn again until S − S has rank d − 2."""
    for attempt in range(1000):
        tails = _distinct_signs(generator(seed, "tails", attempt), count, d - 2)
        if np.linalg.matrix_rank(tails - tails[0]) == d - 2:
            return tails
    raise FlattestError(f"No {count} tails of rank {d - 2} were found at d = {d}; take a larger n.")


def _distinct_signs(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """n distinct points of {−1, 1}^d, uniform without replacement."""
    if d <= 20:
        return hypercube(d)[rng.permutation(2**d)[:n]]
    seen: dict[bytes, np.ndarray] = {}
    while len(seen) < n:
        x = 1.0 - 2.0 * rng.integers(0, 2, d)
        seen.setdefault(x.tobytes(), x)
    return np.array(list(seen.values()))


def meets_condition_1(data: Dataset) -> bool:
    """Whether the training set is complete in the sense of wen2023's Condition 1."""
    signs = data.d >= 3 and np.isin(data.x, [-1.0, 1.0]).all()
    if not signs or not np.array_equal(data.y, _with_xor_labels(data.x)[1]):
        return False
    S, heads = np.unique(data.x[:, 2:], axis=0, return_counts=True)
    complete = (heads == 4).all() and len(np.unique(data.x, axis=0)) == data.n
    return bool(complete and np.linalg.matrix_rank(S - S[0]) == data.d - 2)


class Ball(Distribution, frozen=True, tag="ball"):
    """x uniform in the ball of radius √d, y = |x[1]| − |x[2]| (wen2023, Figure 7)."""

    least_d: ClassVar[int] = 2

    def sample(self, rng, n):
        directions = unit_rows(rng.normal(size=(n, self.d)))
        x = directions * np.sqrt(self.d) * rng.uniform(size=(n, 1)) ** (1 / self.d)
        return x, np.abs(x[:, 0]) - np.abs(x[:, 1])


CIRCLE_LABELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cos": np.cos,
    "cos2": lambda angle: np.cos(2 * angle),
    "sin2": lambda angle: np.sin(2 * angle),
}


class Circle(Distribution, frozen=True, tag="circle"):
    """(x[1], x[2]) uniform on the unit circle, ‖x‖ = radius, the label a function of the angle.

    The inputs of Proposition A.2 and Figure 3 of wen2023. The remaining d − 2 coordinates are
    uniform on the sphere of radius √(radius² − 1); at d = 2 the radius is 1.
    """

    d: int = 2
    radius: float = 1.0
    label: str = "cos2"
    least_d: ClassVar[int] = 2

    def __post_init__(self):
        super().__post_init__()
        require_known("circle label", self.label, CIRCLE_LABELS)
        if self.radius < 1 or (self.d == 2 and self.radius != 1):
            raise FlattestError(f"The radius must be 1 at d = 2 and ≥ 1 beyond, not {self.radius}.")

    def sample(self, rng, n):
        angle = rng.uniform(0, 2 * np.pi, n)
        tail = unit_rows(rng.normal(size=(n, self.d - 2))) * np.sqrt(self.radius**2 - 1)
        x = np.column_stack([np.cos(angle), np.sin(angle), tail])
        return x, CIRCLE_LABELS[self.label](angle)


UNIVARIATE_TARGETS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "zero": np.zeros_like,
    "sine": lambda x: np.sin(np.pi * x),
    "abs": np.abs,
}


class Univariate(Distribution, frozen=True, tag="univariate"):
    """Regression points on the line: x in [low, high], y = target(x) + noise · N(0, 1).

    Training inputs are drawn one per cell of an even grid, within the inner `spread` of the cell,
    so that no two almost coincide (which no gradient descent could interpolate; mulayoff2021).
    """

    d: int = 1
    low: float = -1.0
    high: float = 1.0
    spread: float = 0.5
    target: str = "zero"
    noise: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        if self.d != 1:
            raise FlattestError(f"Univariate data have d = 1, not {self.d}.")
        require_known("univariate target", self.target, UNIVARIATE_TARGETS)
        if not self.low < self.high or not 0 <= self.spread <= 1 or self.noise < 0:
            raise FlattestError("Univariate needs low < high, spread in [0, 1] and noise ≥ 0.")

    def training_points(self, n, seed):
        rng = generator(seed, "data")
        cells = np.arange(n) + 0.5 + self.spread * rng.uniform(-0.5, 0.5, n)
        x = self.low + (self.high - self.low) * cells / n
        return x[:, None], self._labels(rng, x)

    def sample(self, rng, n):
        x = rng.uniform(self.low, self.high, n)
        return x[:, None], self._labels(rng, x)

    def _labels(self, rng, x):
        return UNIVARIATE_TARGETS[self.target](x) + self.noise * rng.normal(size=len(x))


class _Teacher(Distribution, frozen=True):
    """x ~ N(0, I), y = Σ_k α_k link(v_k · x) + offset + noise · N(0, 1), (V, α) the `teacher`."""

    def sample(self: Any, rng, n):
        x = rng.normal(size=(n, self.d))
        V, alpha = self.teacher
        clean = np.asarray(activation(self.link).value(x @ V.T)) @ alpha
        return x, clean + self.offset + self.noise * rng.normal(size=n)


class SumOfSingleIndex(_Teacher, frozen=True, tag="sum_of_single_index"):
    """x ~ N(0, I_d), y = (1/r) Σ_k link(u_k · x) + offset + noise · N(0, 1) (vardhan2026, section
    2; the scalar of section 6.1 is the offset).

    U = (u_1, …, u_r) are the first r coordinate directions, without loss of generality: the
    law of x is invariant under rotations. The link is an activation's name.
    """

    r: int = 5
    link: str = "relu"
    noise: float = 0.0
    offset: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        check_count("r", self.r)
        if self.r > self.d:
            raise FlattestError(f"The number r of indices must lie in [1, d], not {self.r}.")
        if not self.noise >= 0:
            raise FlattestError(f"The label noise must be ≥ 0, not {self.noise!r}.")
        activation(self.link)

    @property
    def directions(self) -> np.ndarray:
        """U, (r, d) with orthonormal rows."""
        return np.eye(self.r, self.d)

    @property
    def teacher(self) -> tuple[np.ndarray, np.ndarray]:
        """(V, α) such that y = Σ_k α_k link(v_k · x) + noise."""
        return self.directions, np.full(self.r, 1 / self.r)


class SingleIndex(SumOfSingleIndex, frozen=True, tag="single_index"):
    """x ~ N(0, I_d), y = link(u · x) + offset + noise · N(0, 1) (vardhan2026, section 2)."""

    r: int = 1

    def __post_init__(self):
        super().__post_init__()
        if self.r != 1:
            raise FlattestError(f"A single-index model has r = 1, not {self.r}.")


class QuadraticForm(_Teacher, frozen=True, tag="quadratic_form"):
    """x ~ N(0, I_d), y = xᵀAx + noise · N(0, 1), A traceless with ‖A‖_F² = ½ so that Var y = 1.

    The target of Nichani et al. 2023, section 4.2, that vardhan2026 takes for Figure 4c. It depends
    on all d directions; as U we name the eigenspace of A's positive eigenvalues, 1/√(2d).
    """

    noise: float = 0.0
    offset: ClassVar[float] = 0.0
    link: ClassVar[str] = "quadratic"
    least_d: ClassVar[int] = 2

    def __post_init__(self):
        super().__post_init__()
        if self.d % 2 or not self.noise >= 0:
            raise FlattestError("A traceless quadratic form needs an even d, and noise ≥ 0.")

    @property
    def directions(self) -> np.ndarray:
        """U, (d/2, d): where A is positive."""
        return np.eye(self.d // 2, self.d)

    @property
    def teacher(self) -> tuple[np.ndarray, np.ndarray]:
        """(V, α) such that y = Σ_k α_k (v_k · x)² + noise."""
        signs = np.repeat([1.0, -1.0], self.d // 2)
        return np.eye(self.d), signs / np.sqrt(2 * self.d)


MultiIndex = SumOfSingleIndex | SingleIndex | QuadraticForm
AnyDistribution = Xor | CompleteXor | Ball | Circle | Univariate | MultiIndex


def standard_error(samples: np.ndarray) -> float:
    """Of the mean; infinite for a single sample, which says nothing of its spread."""
    if len(samples) < 2:
        return np.inf
    return float(samples.std(ddof=1) / np.sqrt(len(samples)))


def population_mean(
    distribution: Distribution,
    predict: Callable[[np.ndarray], Any],
    metric: Callable[[np.ndarray, np.ndarray], np.ndarray],
    size: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """E metric(f(x), y) over the population, with its standard error.

    `predict` maps rows of x to outputs, `metric` outputs and labels to one number per point.
    """
    points = distribution.population(size, seed)
    chunks = [
        slice(start, start + _ROWS_AT_ONCE) for start in range(0, len(points.y), _ROWS_AT_ONCE)
    ]
    values = np.concatenate(
        [_one_number_per_point(metric, predict(points.x[c]), points.y[c]) for c in chunks]
    )
    stderr = 0.0 if points.exact else standard_error(values)
    return Estimate(float(values.mean()), stderr, points.exact)


def _one_number_per_point(metric, f, y: np.ndarray) -> np.ndarray:
    values = np.asarray(metric(np.asarray(f), y), float)
    if values.shape != y.shape:
        raise FlattestError(
            f"The metric must give one number per point, shape {y.shape}, not {values.shape}."
        )
    return values


def xor(n: int = 100, d: int = 30, seed: int = 0, distinct: bool = False) -> Dataset:
    return Xor(d, distinct=distinct).draw(n, seed)


def complete_xor(n: int, d: int, seed: int = 0) -> Dataset:
    return CompleteXor(d).draw(n, seed)


def ball(n: int = 100, d: int = 10, seed: int = 0) -> Dataset:
    return Ball(d).draw(n, seed)


def circle(n: int, d: int = 2, seed: int = 0, radius: float = 1.0, label: str = "cos2") -> Dataset:
    return Circle(d, radius, label).draw(n, seed)


def univariate(n: int = 10, seed: int = 0, **settings) -> Dataset:
    return Univariate(**settings).draw(n, seed)


def single_index(n: int, d: int, seed: int = 0, link: str = "relu", noise: float = 0.0) -> Dataset:
    return SingleIndex(d, link=link, noise=noise).draw(n, seed)


def sum_of_single_index(
    n: int, d: int, r: int = 5, seed: int = 0, link: str = "relu", noise: float = 0.0
) -> Dataset:
    return SumOfSingleIndex(d, r, link, noise).draw(n, seed)


def unit_rows(x: np.ndarray) -> np.ndarray:
    """The rows of x divided by their norms."""
    return x / np.linalg.norm(x, axis=1, keepdims=True) if x.shape[1] else x
