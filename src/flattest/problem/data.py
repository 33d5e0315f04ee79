"""Datasets, and what a distribution is: seed → Dataset, and the population errors are measured on.

The distributions themselves are in `distributions`.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from flattest.errors import FlattestError
from flattest.files import read_arrays, read_columns
from flattest.machine import require_memory
from flattest.problem.checks import check_count, finite_array
from flattest.problem.fingerprint import recall, remember
from flattest.problem.randomness import generator

_ROWS_AT_ONCE = 2**14


@dataclass(frozen=True, eq=False, init=False)
class Dataset:
    """Training inputs x (n, d) and labels y (n,), or (n, k) for k outputs, and where errors are
    measured. Classes, for the cross-entropy, are whole numbers from 0 on.

    That is the population of the `distribution` they came from, or held-out examples: arrays
    `test_x` and `test_y`, or by `test` a share of the rows (0 < test < 1) or a number of them,
    which are drawn by `seed` and leave the training set. Without either, no test error is known.
    Images, x (n, …), become rows.
    """

    x: np.ndarray
    y: np.ndarray
    distribution: "Distribution | None"

    def __init__(
        self,
        x: Any,
        y: Any,
        distribution: "Distribution | None" = None,
        *,
        test_x: Any = None,
        test_y: Any = None,
        test: float | None = None,
        seed: int = 0,
    ):
        x, y = _examples("x", x, "y", y)
        if sum(given is not None for given in (distribution, test_x, test)) > 1:
            raise FlattestError(
                "Say one thing to measure errors on: a distribution, test_x and test_y, or test."
            )
        if (test_x is None) != (test_y is None):
            raise FlattestError("Held-out examples are given as both test_x and test_y.")
        if test is not None:
            x, y, test_x, test_y = _split(x, y, test, seed)
            x.setflags(write=False)
            y.setflags(write=False)
        if test_x is not None:
            distribution = Examples.of(x, y, test_x, test_y)
        for name, value in {"x": x, "y": y, "distribution": distribution}.items():
            object.__setattr__(self, name, value)

    @property
    def n(self) -> int:
        return self.x.shape[0]

    @property
    def d(self) -> int:
        return self.x.shape[1]

    @classmethod
    def load(cls, path: str | Path, label: str = "y", test: float | None = None) -> "Dataset":
        """The data in a file, with its held-out examples or a share `test` of its rows as such.

        An .npz has arrays x and y, and test_x and test_y where it holds examples out; pickled
        contents are refused. A .csv (its first line names the columns) or .parquet has the column
        `label`, and inputs in all others.
        """
        if Path(path).suffix in (".csv", ".parquet"):
            return cls(*_labelled(path, label), test=test)
        found = read_arrays(path)
        if not found.keys() >= {"x", "y"}:
            raise FlattestError(
                f"{path} must hold arrays named x and y; it has {', '.join(found) or 'none'}."
            )
        return cls(
            found["x"],
            found["y"],
            test_x=found.get("test_x"),
            test_y=found.get("test_y"),
            test=test,
        )


def _examples(x_name: str, x: Any, y_name: str, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Copies that cannot be written, checked: x as rows."""
    x, y = finite_array(x_name, x).copy(), finite_array(y_name, y).copy()
    rows = y.ndim == 1 or (y.ndim == 2 and y.shape[1] > 1)
    if x.ndim < 2 or not rows or len(x) != len(y):
        raise FlattestError(
            f"{x_name} must be (n, d) and {y_name} (n,), or (n, k) for k > 1 outputs, not "
            f"{x.shape} and {y.shape}."
        )
    if x.size == 0:
        raise FlattestError("The dataset is empty; it needs at least one point and one input.")
    x = x.reshape(len(x), -1)
    x.setflags(write=False)
    y.setflags(write=False)
    return x, y


def _split(x: np.ndarray, y: np.ndarray, test: float, seed: int) -> list[np.ndarray]:
    """x, y, test_x, test_y: the rows drawn by the seed are held out, the order is kept."""
    n = len(y)
    count = round(test * n) if isinstance(test, float) and 0 < test < 1 else test
    if not isinstance(count, int | np.integer) or isinstance(test, bool) or not 0 < count < n:
        raise FlattestError(
            f"`test` is the share of the {n} rows to hold out, in (0, 1), or their number; at "
            f"least one row must be on each side, so it cannot be {test!r}."
        )
    held_out = np.zeros(n, bool)
    held_out[generator(seed, "held out").permutation(n)[:count]] = True
    return [rows[side] for side in (~held_out, held_out) for rows in (x, y)]


def _labelled(path: str | Path, label: str) -> tuple[np.ndarray, np.ndarray]:
    columns = read_columns(path)
    if label not in columns:
        raise FlattestError(
            f"{path} has no column {label!r} of labels; its columns are {', '.join(columns)}."
        )
    y = columns.pop(label)
    if not columns:
        raise FlattestError(f"{path} has no column beside the labels {label!r}.")
    return np.column_stack(list(columns.values())), y


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
        require_memory(float(n) * (self.d + 1), f"{n} points in {self.d} dimensions")
        return Dataset(*self.training_points(n, seed), self)

    def training_points(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """What `draw` makes a dataset of."""
        return self.sample(generator(seed, "data"), n)

    def population(self, size: int = 10_000, seed: int = 0) -> Population:
        """The whole support where it is finite with at most 2^20 points, else a fresh sample."""
        check_count("size", size)
        require_memory(float(size) * (self.d + 1), f"{size} test points in {self.d} dimensions")
        return Population(*self.sample(generator(seed, "population"), size), exact=False)

    def sample(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """n i.i.d. draws of (x, y)."""
        raise NotImplementedError


class Rows(NamedTuple):
    """Examples to train on, and examples that are held out."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


class HeldOut(Distribution, frozen=True):
    """A law of which only examples are known: errors are measured on those that are held out.

    A training set of n points is n of the `rows` that may be trained on, without replacement; all
    of them are taken in their order, whatever the seed.
    """

    @property
    def rows(self) -> Rows:
        raise NotImplementedError

    def training_points(self, n, seed):
        x, y, *_ = self.rows
        if n > len(y):
            raise FlattestError(f"There are only {len(y)} examples to train on, fewer than {n}.")
        order = generator(seed, "data").permutation(len(y))[:n] if n < len(y) else slice(None)
        return x[order], y[order]

    def population(self, size: int = 10_000, seed: int = 0) -> Population:
        """All held-out examples: a sample, not the support."""
        return Population(self.rows.test_x, self.rows.test_y, exact=False)

    def sample(self, rng, n):
        """n draws of held-out examples, with replacement."""
        at = rng.integers(len(self.rows.test_y), size=n)
        return self.rows.test_x[at], self.rows.test_y[at]


class _Arrays:
    """Rows that can be referred to weakly: they live as long as an `Examples` of them does."""

    def __init__(self, rows: Rows):
        self.rows = rows


_KNOWN: "WeakValueDictionary[str, _Arrays]" = WeakValueDictionary()


class Examples(HeldOut, frozen=True, tag="examples", dict=True):
    """Examples in arrays, known by the digest of their values.

    A spec that was read from a file finds its arrays where this process has made them.
    """

    digest: str = ""

    def __post_init__(self):
        super().__post_init__()
        msgspec.structs.force_setattr(self, "_arrays", _KNOWN.get(self.digest))

    @classmethod
    def of(cls, x, y, test_x, test_y) -> "Examples":
        x, y = _examples("x", x, "y", y)
        test_x, test_y = _examples("test_x", test_x, "test_y", test_y)
        if x.shape[1] != test_x.shape[1]:
            raise FlattestError(
                f"The held-out examples have {test_x.shape[1]} inputs, the training set has "
                f"{x.shape[1]}."
            )
        if y.shape[1:] != test_y.shape[1:]:
            raise FlattestError(
                f"The held-out labels have shape {test_y.shape}, the training set's {y.shape}: one "
                "label per point, or as many, for both."
            )
        rows = Rows(x, y, test_x, test_y)
        parts = [f"{part.shape}".encode() + part.tobytes() for part in rows]
        digest = hashlib.blake2b(b"".join(parts), digest_size=10).hexdigest()
        found = cls(x.shape[1], digest)
        msgspec.structs.force_setattr(found, "_arrays", _KNOWN.setdefault(digest, _Arrays(rows)))
        return found

    @property
    def rows(self) -> Rows:
        arrays = getattr(self, "_arrays", None) or _KNOWN.get(self.digest)
        if arrays is None:
            raise FlattestError(
                f"The arrays of the examples {self.digest} are not here: load the file that makes "
                "them first."
            )
        return arrays.rows


class OwnLaw(Distribution, frozen=True, tag="own"):
    """A user's own subclass of Distribution in a spec: its class, its fields and its fingerprint.

    A spec that was read from a file finds the law where this process has made it.
    """

    kind: str = ""
    fields: dict[str, Any] = {}
    source: str = ""

    @classmethod
    def of(cls, law: Distribution) -> "OwnLaw":
        return cls(law.d, type(law).__name__, msgspec.structs.asdict(law), remember(law))

    @property
    def law(self) -> Distribution:
        return recall(self.source, f"distribution {self.kind}")

    def training_points(self, n, seed):
        return self.law.training_points(n, seed)

    def population(self, size: int = 10_000, seed: int = 0) -> Population:
        return self.law.population(size, seed)

    def sample(self, rng, n):
        return self.law.sample(rng, n)


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
    if values.shape != y.shape[:1]:
        raise FlattestError(
            f"The metric must give one number per point, shape {y.shape[:1]}, not {values.shape}."
        )
    return values
