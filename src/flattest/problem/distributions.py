"""The laws of the papers and other textbook ones, and all that a spec may draw from."""

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from flattest.errors import FlattestError, require_known
from flattest.problem.activations import activation
from flattest.problem.checks import check_count
from flattest.problem.data import Dataset, Distribution, Examples, HeldOut, OwnLaw, Population, Rows
from flattest.problem.randomness import generator

LARGEST_ENUMERATION = 2**20


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

    def neurons(self) -> np.ndarray:
        """±x[1] ± x[2]: inner weights with which a network without bias says y (wen2023, A.2.4)."""
        return np.pad(hypercube(2), ((0, 0), (0, self.d - 2)))

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


class Parity(Distribution, frozen=True, tag="parity"):
    """x uniform on {−1, 1}^d, y = x[1] ⋯ x[k]: k-parity, sparse where k ≪ d; xor is k = 2."""

    k: int = 3

    def __post_init__(self):
        super().__post_init__()
        check_count("k", self.k)
        if self.k > self.d:
            raise FlattestError(f"A parity of {self.k} inputs needs d ≥ {self.k}, not {self.d}.")

    def sample(self, rng, n):
        return self._labelled(1.0 - 2.0 * rng.integers(0, 2, (n, self.d)))

    def population(self, size: int = 10_000, seed: int = 0) -> Population:
        if 2**self.d > LARGEST_ENUMERATION:
            return super().population(size, seed)
        return Population(*self._labelled(hypercube(self.d)), exact=True)

    def _labelled(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x, x[:, : self.k].prod(axis=1)


class TwoMoons(Distribution, frozen=True, tag="two_moons"):
    """Two half circles of radius 1 that reach into each other, y = ±1, plus noise · N(0, I).

    The upper one is centred at (0, 0), the lower one at (1, ½); the d − 2 other inputs are noise.
    """

    d: int = 2
    noise: float = 0.1
    least_d: ClassVar[int] = 2

    def __post_init__(self):
        super().__post_init__()
        if not self.noise >= 0:
            raise FlattestError(f"The noise must be ≥ 0, not {self.noise!r}.")

    def sample(self, rng, n):
        y = 1.0 - 2.0 * rng.integers(0, 2, n)
        angle, x = rng.uniform(0, np.pi, n), self.noise * rng.normal(size=(n, self.d))
        x[:, 0] += y * np.cos(angle) + (1 - y) / 2
        x[:, 1] += y * np.sin(angle) + (1 - y) / 4
        return x, y


class GaussianMixture(Distribution, frozen=True, tag="gaussian_mixture"):
    """x ~ N(c, spread² I_d) with c one of the `centres`, each as likely, y the label of c.

    A centre may have fewer than d coordinates: the others are 0.
    """

    d: int = 2
    centres: tuple[tuple[float, ...], ...] = ((2.0,), (-2.0,))
    labels: tuple[float, ...] = (1.0, -1.0)
    spread: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        if not self.centres or len(self.centres) != len(self.labels):
            raise FlattestError("A Gaussian mixture needs a label for each of its centres.")
        if max(map(len, self.centres)) > self.d:
            raise FlattestError(f"The centres must have at most d = {self.d} coordinates.")
        if not self.spread > 0:
            raise FlattestError(f"The spread must be positive, not {self.spread!r}.")

    def sample(self, rng, n):
        centres = np.array([np.pad(c, (0, self.d - len(c))) for c in self.centres])
        which = rng.integers(len(centres), size=n)
        x = centres[which] + self.spread * rng.normal(size=(n, self.d))
        return x, np.array(self.labels, float)[which]


class Digits(HeldOut, frozen=True, tag="digits"):
    """Some of scikit-learn's handwritten digits, 8 × 8 pixels. Of two classes y = 1 for the first
    and −1 for the second, of more y is the place among `classes`, from 0 on. A share `test` of the
    images is held out, the same for every seed.

    `inputs`: "pixels" in [0, 1], or the same divided by their norm, "unit".
    """

    d: int = 64
    classes: tuple[int, ...] = (3, 8)
    test: float = 0.2
    inputs: Literal["pixels", "unit"] = "pixels"

    def __post_init__(self):
        super().__post_init__()
        chosen = set(self.classes)
        if self.d != 64 or not 2 <= len(self.classes) == len(chosen) or not chosen <= {*range(10)}:
            raise FlattestError("Digits have d = 64 and two or more different classes of 0 … 9.")
        require_known("kind of inputs", self.inputs, ("pixels", "unit"))

    @property
    def rows(self) -> Rows:
        return _digits(self.classes, self.test, self.inputs)


@cache
def _digits(classes: tuple[int, ...], test: float, inputs: str) -> Rows:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise FlattestError(
            "The digits come with scikit-learn: `pip install 'flattest[digits]'`."
        ) from error
    pixels, digit = load_digits(return_X_y=True)
    chosen = np.isin(digit, classes)
    x, places = pixels[chosen] / 16, digit[chosen, None] == np.array(classes)
    y = np.where(places[:, 0], 1.0, -1.0) if len(classes) == 2 else places.argmax(1).astype(float)
    held_out = Dataset(unit_rows(x) if inputs == "unit" else x, y, test=test).distribution
    assert isinstance(held_out, HeldOut)
    return held_out.rows


MultiIndex = SumOfSingleIndex | SingleIndex | QuadraticForm
AnyDistribution = (
    Xor
    | CompleteXor
    | Ball
    | Circle
    | Univariate
    | MultiIndex
    | Parity
    | TwoMoons
    | GaussianMixture
    | Digits
    | Examples
    | OwnLaw
)


def declared(law: Distribution) -> "AnyDistribution":
    """The distribution as a spec can have it: a user's own class by its fingerprint."""
    return law if isinstance(law, get_args(AnyDistribution)) else OwnLaw.of(law)


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
