"""vardhan2026: the scatter of flatness against population loss (section 6), and the scaling laws.

    flattest run 'vardhan2026/*' --full     minutes; the paper took 5 hours
    flattest summary 'vardhan2026/*' --full
    flattest plot 'vardhan2026/*' --full

The paper's copy lost d, n, m, r, the grid of ρ, the noise and the number of seeds. Chosen here:
d = 100, n = 200, m = 400, r = 10 indices with coefficients 1/r, 15 values of ρ log-spaced in
[0.01, 0.99], noise 0.01 (0.1 where a panel is called noisy), LeakyReLU's slope 0.1, links equal to
activations unless said.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import flattest as ft
from flattest.experiments.expectations import (
    AtLeast,
    AtLeastInEverySeed,
    AtMost,
    EqualsPower,
    PowerLaw,
    RankCorrelation,
    RisesAfterMinimum,
    rank_correlation,
)
from flattest.experiments.experiment import Computed
from flattest.problem.distributions import MultiIndex

ACTIVATIONS = {"relu": "relu", "leaky-relu": "leaky_relu:0.1", "quadratic": "quadratic"}
# p = 2c/(c+1) of Lemma 1, for σ of degree c.
EXPONENTS = {"relu": 1.0, "leaky_relu:0.1": 1.0, "quadratic": 4 / 3}


class Scatter(Computed, frozen=True, tag="vardhan2026/scatter"):
    """Figures 2–4: for each ρ, unit inner weights of correlation exactly ρ and their flattest a.

    `flatness` is S_min of Lemma 3 at the minimizer of the plain norm ‖a‖_p^p of Eq. (3), and
    `population_loss` its closed-form loss; the series named weighted_… belong to the minimizer of
    S_min itself (the exactly weighted norm). The training set is the same for all ρ. `certified`
    is 1 where both programs were solved to optimality; elsewhere the other series are NaN.
    """

    distribution: MultiIndex
    activation: str
    n: int = 200
    m: int = 400
    correlations: int = 15
    low: float = 0.01
    high: float = 0.99
    test_size: int = 10_000

    def compute(self, seed: int) -> Mapping[str, Any]:
        from flattest.papers.vardhan2026.interpolation import of_correlation

        distribution, name = self.distribution, self.activation
        data = distribution.draw(self.n, seed)
        fresh = distribution.population(self.test_size, seed)
        grid = np.geomspace(self.low, self.high, self.correlations)
        points = [of_correlation(r, self.m, data, fresh, distribution, name, seed) for r in grid]
        series = {name: np.array([point[name] for point in points]) for name in points[0]}
        return {"correlation": grid, "misalignment": 1 - grid, **series}

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        """Rank correlations over ρ, and flatness and loss at the ends of the grid and between."""
        flatness, rho = series["flatness"], series["correlation"]
        # 12 decimals: what is 0 to rounding (Figure 4b) has no ranks.
        loss = np.round(series["population_loss"], 12) + 0.0
        return {
            "−ρ ↔ flatness": rank_correlation(-rho, flatness),
            "−ρ ↔ loss": rank_correlation(-rho, loss),
            "flatness ↔ loss": rank_correlation(flatness, loss),
            "flatness, least ρ": flatness[0],
            "least flatness": flatness.min(),
            "flatness, largest ρ": flatness[-1],
            "loss, least ρ": loss[0],
            "loss of the flattest": loss[flatness.argmin()],
            "loss, largest ρ": loss[-1],
        }


class Scaling(Computed, frozen=True, tag="vardhan2026/scaling"):
    """‖a‖_p^p of the flattest interpolator against n, for good and for bad inner weights.

    d = 2n, m = 3n, labels a sum of r single-index models with noise τ/√n (Assumption 4). Good:
    n neurons are the teacher's directions, 2n random (the construction of Lemma 13). Bad: all
    neurons in the complement of span(U) (Definition 2 with ρ = 0, Example 1). `flatness` series are
    S_min / d^{c/(c+1)}. Where a program was not solved to optimality its series are NaN, and its
    `certified` is 0.
    """

    activation: str
    sizes: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    r: int = 5
    tau: float = 0.1

    def compute(self, seed: int) -> Mapping[str, Any]:
        from flattest.papers.vardhan2026.interpolation import good_and_bad

        rows = [good_and_bad(n, self.r, self.tau, self.activation, seed) for n in self.sizes]
        series = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        gap = series["bad"] / series["good"]
        return {"n": np.array(self.sizes, float), **series, "gap": gap}

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        """Exponents in n: those of Theorems 1 and 2, and those found."""

        p, log_n = ft.norm_exponent(self.activation), np.log(series["n"])

        def exponent(name: str) -> float:
            return float(np.polyfit(log_n, np.log(series[name]), 1)[0])

        return {
            "largest n": series["n"][-1],
            "good, expected": 1 - p,
            "good": exponent("good"),
            "bad, expected": 1 - p / 2,
            "bad": exponent("bad"),
            "gap, expected": p / 2,
            "gap": exponent("gap"),
            "excess loss, good": exponent("good_excess_loss"),
            "excess loss, bad": exponent("bad_excess_loss"),
        }


DIMENSIONS = (20, 40, 80)


class Dimensions(Computed, frozen=True, tag="vardhan2026/dimensions"):
    """The quadratic form of Figure 4(c) in several dimensions d, with n = 2d and m = 4d.

    `connection_d…` is Spearman's correlation of the population loss with the flatness over ρ,
    `fall` that in the fewest dimensions minus that in the most; `least_loss` and `certified` are
    the least over ρ, one entry for each d.
    """

    dimensions: tuple[int, ...] = DIMENSIONS
    correlations: int = 8

    def compute(self, seed: int) -> Mapping[str, Any]:
        found = {d: self._scatter(d).compute(seed) for d in self.dimensions}
        links = [rank_correlation(s["flatness"], s["population_loss"]) for s in found.values()]
        return {
            **{f"connection_d{d}": link for d, link in zip(found, links, strict=True)},
            "fall": links[0] - links[-1],
            "least_loss": [s["population_loss"].min() for s in found.values()],
            "certified": [s["certified"].min() for s in found.values()],
        }

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        links = {f"flatness ↔ loss, d = {d}": f"connection_d{d}" for d in self.dimensions}
        ends = {column: float(series[name]) for column, name in (links | {"fall": "fall"}).items()}
        return ends | {"least loss": float(np.min(series["least_loss"]))}

    def _scatter(self, d: int) -> Scatter:
        return Scatter(
            distribution=ft.QuadraticForm(d, 0.01),
            activation="relu",
            n=2 * d,
            m=4 * d,
            correlations=self.correlations,
            test_size=100,
        )


def _scatter(panel, figure, statement, distribution, name, expectations, notes="", **settings):
    """A panel at full scale, and quick at a fifth of the dimensions with half the grid."""
    full = Scatter(distribution=distribution(100), activation=name, **settings)
    reduced = {key: value // 5 for key, value in settings.items()}
    quick = Scatter(
        distribution=distribution(20),
        activation=name,
        **{"n": 40, "m": 80, "correlations": 8, "test_size": 2000, **reduced},
    )
    return ft.Experiment(
        name=f"vardhan2026/{panel}",
        figure=figure,
        statement=statement,
        quick=ft.Variant(quick, seeds=3, expectations=(CERTIFIED,)),
        full=ft.Variant(full, seeds=10, expectations=(CERTIFIED, *expectations)),
        notes=notes,
    )


CERTIFIED = AtLeastInEverySeed(series="certified", value=1, at="min")
# Spearman's rank correlations over the grid of ρ, the median over seeds.
GOOD_IS_ALIGNED = RankCorrelation(x="misalignment", y="population_loss", at_least=0.8)
FLAT_IS_GOOD = RankCorrelation(x="flatness", y="population_loss", at_least=0.8)
FLAT_IS_ALIGNED = RankCorrelation(x="misalignment", y="flatness", at_least=0.9)
WEIGHTED_FLAT_IS_ALIGNED = RankCorrelation(x="misalignment", y="weighted_flatness", at_least=0.8)
LINKED = (
    GOOD_IS_ALIGNED,
    FLAT_IS_GOOD,
    RankCorrelation(x="weighted_flatness", y="weighted_population_loss", at_least=0.8),
)
# n > d noiseless samples determine a linear function, and 1 = Σ a_j (w_j·u) ≤ ρ‖a‖₁.
DETERMINED = AtMost(series="population_loss", value=1e-10, at="max")
INVERSE = EqualsPower(x="correlation", y="norm", exponent=-1, tolerance=1e-9)
# f = 0 has loss 1: no interpolator of the quadratic form does better, whatever its flatness.
NO_BETTER_THAN_ZERO = AtLeastInEverySeed(series="least_loss", at="min", value=1)
FADES = AtLeast(series="fall", value=0)


def connection(d: int) -> AtLeast:
    """Flatter interpolators of the quadratic form in d dimensions have a smaller loss."""
    return AtLeast(series=f"connection_d{d}", value=0)


NOT_DEFINITION_2 = (
    "m > d weights span all of R^d, so that the span's correlation is 1 whatever ρ is: this is not "
    "the third condition of Definition 2."
)


def _single_index(name, noise=0.01):
    return lambda d: ft.SingleIndex(d, link=name, noise=noise)


def _sum_of_single_index(name):
    return lambda d: ft.SumOfSingleIndex(d, d // 10, name, 0.01)


FIGURE_2 = tuple(
    _scatter(
        f"fig2-{label}",
        "Figure 2",
        "Single-index models: flat goes with a small population loss (the paper: not with ReLU)."
        if label == "relu"
        else "Single-index models: flat goes with a small population loss.",
        _single_index(name),
        name,
        LINKED,
        NOT_DEFINITION_2,
    )
    for label, name in ACTIVATIONS.items()
)
FIGURE_2_NOISY = tuple(
    _scatter(
        f"fig2-{label}-noisy",
        "Figure 2",
        "Single-index models: an extremely high correlation forces large weights, hence sharpness.",
        _single_index(name, noise=0.1),
        name,
        # At ρ = 0.99 the neurons are nearly alike, and fitting noise with them takes large weights.
        (RisesAfterMinimum(series="flatness", by=50),),
        NOT_DEFINITION_2,
    )
    for label, name in ACTIVATIONS.items()
)
FIGURE_3 = tuple(
    _scatter(
        f"fig3-{label}",
        "Figure 3",
        "Sums of single-index models: flatness and population loss both fall as ρ rises.",
        _sum_of_single_index(name),
        name,
        (*LINKED, FLAT_IS_ALIGNED, WEIGHTED_FLAT_IS_ALIGNED),
        NOT_DEFINITION_2,
    )
    for label, name in ACTIVATIONS.items()
)
FIGURE_4 = (
    _scatter(
        "fig4a",
        "Figure 4(a)",
        "A linear link learned with ReLU behaves as a multi-index model does.",
        _single_index("linear"),
        "relu",
        (*LINKED, FLAT_IS_ALIGNED),
    ),
    _scatter(
        "fig4b",
        "Figure 4(b)",
        "Linear link and activation: all losses are 0, S_min falls like 1/ρ (the paper: is alike).",
        lambda d: ft.SingleIndex(d, link="linear"),
        "linear",
        (DETERMINED, INVERSE),
        "n = 2d noiseless samples determine the linear function, so the loss is 0 and "
        "‖a‖₁ ≥ 1/ρ: the flatness is not the same for all ρ, it falls like 1/ρ.",
    ),
    _scatter(
        "fig4b-few",
        "Figure 4(b)",
        "As Figure 4(b), with n = d/2 samples, which do not determine the linear function.",
        lambda d: ft.SingleIndex(d, link="linear"),
        "linear",
        LINKED,
        n=50,
        m=100,
    ),
    _scatter(
        "fig4c",
        "Figure 4(c)",
        "The quadratic form of Nichani et al. with ReLU: all population losses are large.",
        lambda d: ft.QuadraticForm(d, 0.01),
        "relu",
        (AtLeast(series="population_loss", value=1, at="min"),),
        "U, which is all of R^d, is taken to be the positive eigenspace of the form. Whether "
        "flatness and loss are connected takes more seeds: fig4c-dimensions.",
    ),
)


def _scaling(label: str, name: str) -> ft.Experiment:
    p = EXPONENTS[name]
    expectations = (
        AtLeastInEverySeed(series="good_certified", value=1, at="min"),
        AtLeastInEverySeed(series="bad_certified", value=1, at="min"),
        PowerLaw(x="n", y="good", exponent=1 - p, tolerance=0.1),
        PowerLaw(x="n", y="bad", exponent=1 - p / 2, tolerance=0.15),
        PowerLaw(x="n", y="gap", exponent=p / 2, tolerance=0.15),
    )
    return ft.Experiment(
        name=f"vardhan2026/scaling-{label}",
        figure="Theorems 1, 2",
        statement="‖a‖_p^p of the flattest interpolator grows like m^{1−p} for good and m^{1−p/2} "
        "for bad inner weights.",
        quick=ft.Variant(Scaling(activation=name, sizes=(128, 256, 512)), 3, expectations),
        full=ft.Variant(Scaling(activation=name), 3, expectations),
    )


EXPERIMENTS = (
    *FIGURE_2,
    *FIGURE_2_NOISY,
    *FIGURE_3,
    *FIGURE_4,
    *(_scaling(label, name) for label, name in ACTIVATIONS.items()),
    ft.Experiment(
        name="vardhan2026/fig4c-dimensions",
        figure="Figure 4(c)",
        statement="The quadratic form: flatness and loss are connected in few dimensions (the "
        "paper: not at all), and the less the more there are.",
        quick=ft.Variant(Dimensions(dimensions=(10, 20)), seeds=3, expectations=(CERTIFIED,)),
        full=ft.Variant(
            Dimensions(),
            seeds=40,
            expectations=(CERTIFIED, NO_BETTER_THAN_ZERO, FADES, *map(connection, DIMENSIONS)),
        ),
        notes="One seed's rank correlation has a standard deviation of about ½.",
    ),
)
