"""What must come out of an experiment, as data that gives a verdict.

An expectation measures one number on each seed's run and compares their median with a
threshold; one that speaks of every seed, or of every point of a series, compares the worst. A seed
that diverged, or ended in NaN, counts as the worst value there is, so that expectations cannot be
met by what did not happen.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Union

import msgspec
import numpy as np

from flattest.errors import FlattestError, unknown
from flattest.evidence import Relation, Verdict
from flattest.training.run import Run

Others = Callable[[str], Sequence[Run]]


def no_others(name: str) -> Sequence[Run]:
    raise FlattestError(f"This expectation compares with {name!r}, whose runs are not here.")


def tail(values: np.ndarray) -> float:
    """The median of the last tenth, for series that fluctuate."""
    return float(np.median(values[-max(1, len(values) // 10) :]))


REDUCTIONS: dict[str, Callable[[np.ndarray], Any]] = {
    "start": lambda values: values[0],
    "end": lambda values: values[-1],
    "tail": tail,
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "median": np.median,
}


def reduce(run: Run, series: str, at: str | float) -> float:
    """The number `at` says of a series: a reduction's name, or an epoch (the last log up to it)."""
    values = run[series]
    if not isinstance(at, str):
        values, at = values[: np.searchsorted(run["epoch"], at, side="right")], "end"
    return float(REDUCTIONS[at](values)) if values.size else np.nan


def pair(run: Run, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """Two series that belong together point by point."""
    if run[x].shape != run[y].shape:
        raise FlattestError(
            f"The series {x} and {y} cannot be compared: "
            f"their shapes are {run[x].shape} and {run[y].shape}."
        )
    return run[x], run[y]


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's; NaN where one of the two is constant or empty."""
    from scipy.stats import spearmanr  # slow to import, and rarely needed

    varied = x.size > 0 and np.ptp(x) > 0 < np.ptp(y)
    return float(spearmanr(x, y).statistic) if varied else np.nan


class Rule(NamedTuple):
    """What is measured, in words (fields in braces), and its relation to the field `threshold`."""

    quantity: str
    side: Relation
    threshold: str


class Expectation(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="expect"
):
    """The base of all: a subclass measures a seed, and has a rule that its value must keep."""

    rule: ClassVar[Rule]
    across_seeds: ClassVar[Callable[[Sequence[float]], Any]] = np.median

    def __post_init__(self) -> None:
        at = getattr(self, "at", "end")
        if isinstance(at, str) and at not in REDUCTIONS:
            raise unknown("place to look at a series", at, REDUCTIONS)

    @property
    def side(self) -> Relation:
        return self.rule.side

    @property
    def threshold(self) -> float:
        return getattr(self, self.rule.threshold)

    @property
    def quantity(self) -> str:
        """What is measured, in words."""
        fields = msgspec.structs.asdict(self)
        return self.rule.quantity.format(**fields, place=place(fields.get("at", "end")))

    def value_of(self, run: Run, others: Others) -> float:
        raise NotImplementedError

    def verdict(self, runs: Sequence[Run], others: Others = no_others) -> Verdict:
        """The verdict over the seeds' runs; `others` gives those of another experiment."""
        if not runs:
            raise FlattestError("There are no runs to assess.")
        values = tuple(self.seed_value(r, others) for r in runs)
        value = float(type(self).across_seeds(values))
        return Verdict(self.quantity, value, self.threshold, self.side, values=values)

    def seed_value(self, run: Run, others: Others) -> float:
        """The value of a seed's run, the worst there is where it diverged or ended in NaN."""
        value = np.nan if run.status == "diverged" else self.value_of(run, others)
        worst = np.inf if self.side == "≤" else -np.inf
        return worst if np.isnan(value) else float(value)


def place(at: str | float) -> str:
    return {"end": "at the end", "start": "at the start", "tail": "in the last tenth"}.get(
        str(at), f"({at})" if isinstance(at, str) else f"at epoch {at:g}"
    )


class AtMost(Expectation, frozen=True, tag="at_most"):
    """series ≤ value, at its end or wherever `at` says."""

    series: str
    value: float
    at: str | float = "end"
    rule = Rule("{series} {place}", "≤", "value")

    def value_of(self, run: Run, others: Others) -> float:
        return reduce(run, self.series, self.at)


class AtLeast(AtMost, frozen=True, tag="at_least"):
    """series ≥ value, at its end or wherever `at` says."""

    rule = AtMost.rule._replace(side="≥")


class AtLeastInEverySeed(AtLeast, frozen=True, tag="at_least_in_every_seed"):
    """series ≥ value, at its end or wherever `at` says, in the worst seed."""

    across_seeds = np.min


class AtMostInEverySeed(AtMost, frozen=True, tag="at_most_in_every_seed"):
    """series ≤ value, at its end or wherever `at` says, in the worst seed."""

    across_seeds = np.max


class MeanAtLeast(AtLeast, frozen=True, tag="mean_at_least"):
    """series ≥ value on the average over seeds: of what is 0 or 1, the share of seeds."""

    rule = AtMost.rule._replace(quantity="the mean of {series} {place}", side="≥")
    across_seeds = np.mean


class WithinOfBound(Expectation, frozen=True, tag="within_of_bound"):
    """|series / bound − 1| ≤ relative: how far the sharpness is from its certified lower bound."""

    relative: float
    series: str = "sharpness"
    bound: str = "bound"
    at: str | float = "end"
    rule = Rule("the distance |{series}/{bound} − 1| {place}", "≤", "relative")

    def value_of(self, run: Run, others: Others) -> float:
        here, bound = (reduce(run, name, self.at) for name in (self.series, self.bound))
        return abs(here / bound - 1) if bound else abs(here)


class RisesAfterMinimum(Expectation, frozen=True, tag="rises_after_minimum"):
    """The last tenth of a series lies at least `by` above its minimum."""

    series: str
    by: float
    rule = Rule("the rise of {series} after its minimum", "≥", "by")

    def value_of(self, run: Run, others: Others) -> float:
        return reduce(run, self.series, "tail") - reduce(run, self.series, "min")


class LeastBy(Expectation, frozen=True, tag="least_by"):
    """A series has its least value no later than at `epoch`."""

    series: str
    epoch: float
    rule = Rule("the epoch at which {series} is least", "≤", "epoch")

    def value_of(self, run: Run, others: Others) -> float:
        return float(run["epoch"][np.argmin(run[self.series])])


class FallsTo(Expectation, frozen=True, tag="falls_to"):
    """The last tenth of a series is at most the share `to` of its largest value."""

    series: str
    to: float
    rule = Rule("{series} in the last tenth as a share of its maximum", "≤", "to")

    def value_of(self, run: Run, others: Others) -> float:
        return reduce(run, self.series, "tail") / reduce(run, self.series, "max")


class RatioAtLeast(Expectation, frozen=True, tag="ratio_at_least"):
    """series here / the median over seeds of series in the experiment `other` ≥ ratio."""

    other: str
    series: str
    ratio: float
    at: str | float = "end"
    rule = Rule("{series} {place} as a multiple of that of {other}", "≥", "ratio")

    def value_of(self, run: Run, others: Others) -> float:
        # A seed of the other that diverged is the hardest to compare with.
        worst = np.inf if self.side == "≥" else 0.0
        there = np.median(
            [
                worst if r.status == "diverged" else reduce(r, self.series, self.at)
                for r in others(self.other)
            ]
        )
        here = reduce(run, self.series, self.at)
        if there == 0:
            return np.inf if here > 0 else np.nan
        return here / there


class RatioAtMost(RatioAtLeast, frozen=True, tag="ratio_at_most"):
    """series here / the median over seeds of series in the experiment `other` ≤ ratio."""

    rule = RatioAtLeast.rule._replace(side="≤")


class Ends(Expectation, frozen=True, tag="ends"):
    """The share of seeds that end with `status` is at least `share`."""

    status: Literal["finished", "diverged", "stagnated"] = "finished"
    share: float = 1.0
    across_seeds = np.mean
    rule = Rule("the share of runs that ended {status}", "≥", "share")

    def seed_value(self, run: Run, others: Others) -> float:
        return float(run.status == self.status)


class Everywhere(Expectation, frozen=True, tag="everywhere"):
    """series ≤ (1 + slack) · at_most, at every point of every seed.

    Points where either is NaN are left out.
    """

    series: str
    at_most: str
    slack: float = 0.0
    across_seeds = np.max
    rule = Rule("the largest excess of {series} over {at_most}, relative,", "≤", "slack")

    def value_of(self, run: Run, others: Others) -> float:
        low, high = pair(run, self.series, self.at_most)
        there = ~(np.isnan(low) | np.isnan(high))
        if not there.any():
            return np.nan
        return float(np.max((low[there] - high[there]) / np.abs(high[there])))


class RankCorrelation(Expectation, frozen=True, tag="rank_correlation"):
    """Spearman's rank correlation of two series is at least `at_least`."""

    x: str
    y: str
    at_least: float
    rule = Rule("the rank correlation of {y} with {x}", "≥", "at_least")

    def value_of(self, run: Run, others: Others) -> float:
        return rank_correlation(*pair(run, self.x, self.y))


class PowerLaw(Expectation, frozen=True, tag="power_law"):
    """y grows like x^exponent: the slope of log y on log x is within `tolerance` of it."""

    x: str
    y: str
    exponent: float
    tolerance: float
    rule = Rule("the distance of the exponent of {y} in {x} from {exponent:g}", "≤", "tolerance")

    def value_of(self, run: Run, others: Others) -> float:
        x, y = pair(run, self.x, self.y)
        if not (np.min(x) > 0 and np.min(y) > 0 and np.ptp(x) > 0):
            return np.nan
        return abs(float(np.polyfit(np.log(x), np.log(y), 1)[0]) - self.exponent)


class EqualsPower(PowerLaw, frozen=True, tag="equals_power"):
    """y = x^exponent at every point of every seed, up to a relative `tolerance`."""

    across_seeds = np.max
    rule = Rule("the largest relative distance of {y} from {x}^{exponent:g}", "≤", "tolerance")

    def value_of(self, run: Run, others: Others) -> float:
        x, y = pair(run, self.x, self.y)
        return float(np.max(np.abs(y / x**self.exponent - 1)))


class FirstColumnsDominate(Expectation, frozen=True, tag="first_columns_dominate"):
    """The first `columns` columns of W1 have norms at least `ratio` times the largest other's.

    Of xor data only the first two inputs matter: Figure 2b of wen2023 prints 42.47 and 42.48
    against 5.65.
    """

    ratio: float
    columns: int = 2
    rule = Rule(
        "the least norm of W1's first {columns} columns over the largest other", "≥", "ratio"
    )

    def value_of(self, run: Run, others: Others) -> float:
        if run.params is None:
            return np.nan
        norms = np.linalg.norm(np.asarray(run.params["W1"], float), axis=0)
        if not 0 < self.columns < len(norms):
            raise FlattestError(f"W1 has {len(norms)} columns; {self.columns} cannot dominate.")
        return float(norms[: self.columns].min() / norms[self.columns :].max())


class LargestNeuronsExtract(Expectation, frozen=True, tag="largest_neurons_extract"):
    """Each of ±x[1] ± x[2] is the direction of one of the `count` neurons of largest norm, but for
    `distance`: the four lines of Figure 2b's table in wen2023, whose distance is 0.0015.

    Directions are unit vectors. Within a half both weights have the right sign; where no neuron has
    the signs of a feature it is at least √(2 − √2) = 0.77.
    """

    distance: float
    count: int = 4
    rule = Rule(
        "the largest distance of ±x[1] ± x[2] from the nearest of the {count} largest neurons",
        "≤",
        "distance",
    )

    def value_of(self, run: Run, others: Others) -> float:
        if run.params is None:
            return np.nan
        W1 = np.asarray(run.params["W1"], float)
        return farthest_feature(W1[np.argsort(-np.linalg.norm(W1, axis=1))[: self.count]])


def farthest_feature(neurons: np.ndarray) -> float:
    """The largest distance of the directions ±x[1] ± x[2] from the nearest neuron's."""
    directions = neurons / np.linalg.norm(neurons, axis=1, keepdims=True)
    features = np.zeros((4, neurons.shape[1]))
    features[:, :2] = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)]) / np.sqrt(2)
    distances = np.linalg.norm(features[:, None] - directions, axis=2)
    return float(distances.min(axis=1).max())


AnyExpectation = Union[  # noqa: UP007
    AtMost,
    AtLeast,
    AtLeastInEverySeed,
    MeanAtLeast,
    AtMostInEverySeed,
    WithinOfBound,
    RisesAfterMinimum,
    LeastBy,
    FallsTo,
    RatioAtLeast,
    RatioAtMost,
    Ends,
    Everywhere,
    RankCorrelation,
    PowerLaw,
    EqualsPower,
    FirstColumnsDominate,
    LargestNeuronsExtract,
]
