"""A memorizer and a generalizer of the same certified flatness, measured by the whole league.

    flattest run 'league/*' --full          three pairs, ten draws each; minutes
    flattest summary 'league/*' --full

Both networks interpolate, both attain the least trace over all interpolators of their architecture
(to 1e-5 with Sim-BN), one is 0 or wrong off the training set and the other right everywhere. A
measure that is larger at the memorizer in every draw would have told.

What to expect, on paper, of the ratio memorizer / generalizer. The trace, its Gauss–Newton part and
its least value are equal by construction; wᵀGw is ℓ″ times a mean of (2f)² or f², equal at
interpolators; ∇L is 0. With bias and with Sim-LN the memorizer spreads the same trace over n
directions where the generalizer has four, so λ_max, the sum of five, √(mean λ²) and what a ball
sees (ε-ball, m-sharpness) are *smaller* at the memorizer; ‖W2‖² Tr H of the last layer, and sums of
√H |w|, are larger, since it has n neurons. Spikes cost nothing on the training set that any
derivative of L sees: with Sim-BN all measures agree. The expectations of the first pair were
written after one trial at d = 8, n = 40; those of the others before any run.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import flattest as ft
from flattest.experiments.expectations import AtLeastInEverySeed, AtMostInEverySeed
from flattest.experiments.experiment import Computed, Experiment, Variant

# At interpolators batches have no gradient, and the edge is λ_max by another name.
LEFT_OUT = ("batch_sharpness", "edge")
# Numbers below this are rounding errors of 0.
_ZERO = 1e-9


# A memorizer and a generalizer, each a `Construction`, which brings the numerics along.
Networks = tuple[Any, Any]


def _bias(data: ft.Dataset) -> Networks:
    return ft.memorizer(data), ft.xor_generalizer(data)


def _sim_ln(data: ft.Dataset) -> Networks:
    """With active neurons at 1: their scale is free, and 2ε would be a size of its own."""
    return ft.sim_ln_memorizer(data, u=np.ones(data.n)), ft.sim_ln_generalizer(data, u=1.0)


def _sim_bn(data: ft.Dataset) -> Networks:
    return ft.sim_bn_spike(data, excess=1e-5), ft.sim_bn_optimum(data)


PAIRS: dict[str, Callable[[ft.Dataset], Networks]] = {
    "bias": _bias,
    "sim-ln": _sim_ln,
    "sim-bn": _sim_bn,
}


class AtEqualFlatness(Computed, frozen=True, tag="league/at_equal_flatness"):
    """Every measure of both networks, and their ratio, memorizer to generalizer."""

    pair: str
    d: int = 30
    n: int = 100

    def compute(self, seed: int) -> Mapping[str, Any]:
        networks = PAIRS[self.pair](self._draw(seed))
        found = [self._measured(network, self._draw(seed)) for network in networks]
        values = {name: np.array([one[name] for one in found]) for name in found[0]}
        return values | {f"ratio_{name}": _ratio(*pair) for name, pair in values.items()}

    def _draw(self, seed: int) -> ft.Dataset:
        if self.pair == "sim-bn":
            return ft.CompleteXor(self.d).draw(self.n, seed)
        return ft.xor(self.n, self.d, seed, distinct=True)

    def _measured(self, network: Any, data: ft.Dataset) -> dict[str, float]:
        from flattest.curvature.result import whole
        from flattest.flatness.certification import population_error

        model, params, certificate = network
        settings = ft.LeagueSettings(layer="W2", m=1)
        only = [name for name in ft.MEASURES if name not in LEFT_OUT]
        league = whole(ft.league(model, params, data, only=only, settings=settings))
        values = {name: quantity.value for name, quantity in league.values.items()}
        error = population_error(model, params, data, 20_000).value
        return values | {"certified": certificate.value, "test_error": error}

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        ratios = {name: v for name, v in series.items() if name.startswith("ratio_")}
        of = {f"ratio_{name}" for name in ("certified", "test_error")}
        errors = zip(("memorizer", "generalizer"), series["test_error"], strict=True)
        return {f"error_of_the_{who}": float(error) for who, error in errors} | {
            name: float(ratio[0]) for name, ratio in ratios.items() if name not in of
        }


def _ratio(memorizer: float, generalizer: float) -> np.ndarray:
    one, other = (0.0 if abs(v) < _ZERO else v for v in (memorizer, generalizer))
    return np.array([1.0 if one == other == 0 else one / other if other else np.inf])


def _between(
    low: float, high: float, *names: str
) -> tuple[AtMostInEverySeed | AtLeastInEverySeed, ...]:
    return tuple(
        expectation
        for name in names
        for expectation in (
            AtLeastInEverySeed(series=f"ratio_{name}", value=low),
            AtMostInEverySeed(series=f"ratio_{name}", value=high),
        )
    )


def _sharper(*names: str) -> tuple[AtMostInEverySeed | AtLeastInEverySeed, ...]:
    return tuple(AtLeastInEverySeed(series=f"ratio_{name}", value=1.05) for name in names)


def _flatter(*names: str) -> tuple[AtMostInEverySeed | AtLeastInEverySeed, ...]:
    return tuple(AtMostInEverySeed(series=f"ratio_{name}", value=0.95) for name in names)


_FLAT = ("trace", "gauss_newton_trace")
_SPREAD = ("top_eigenvalue", "top_eigenvalues", "spectrum", "ball_sharpness", "m_sharpness")
_SCALED = ("relative_flatness", "normalized_sharpness", "adaptive_worst", "pac_bayes_magnitude")
_ERRORS = (
    AtLeastInEverySeed(series="test_error", at="start", value=0.85),
    AtMostInEverySeed(series="test_error", at="end", value=0.0),
)
_SAME = _between(0.9999, 1.0001, *_FLAT, "fisher_rao", "gradient_norm")
EXPECTED: dict[str, tuple[AtMostInEverySeed | AtLeastInEverySeed, ...]] = {
    "bias": (
        *_SAME,
        *_between(0.9999, 1.0001, "least_trace", "minimum_sharpness"),
        *_flatter(*_SPREAD),
        *_sharper(*_SCALED, "adaptive_average"),
        *_between(0.8, 1.25, "pac_bayes"),
    ),
    "sim-ln": (
        *_SAME,
        *_between(0.9999, 1.0001, "adaptive_average"),
        *_flatter(*_SPREAD),
        *_sharper(*_SCALED, "pac_bayes"),
    ),
    "sim-bn": (
        *_SAME,
        *_between(0.99, 1.01, *_SPREAD, "adaptive_average", "relative_flatness"),
        # So was normalized_sharpness, which has no meaning here: ∇²L has negative diagonal entries.
        *_between(0.95, 1.05, "adaptive_worst"),
        *_between(0.8, 1.25, "pac_bayes", "pac_bayes_magnitude"),
    ),
}
_STATEMENTS = {
    "bias": "Flattest networks with a bias: a memorizer and the four-neuron generalizer.",
    "sim-ln": "Flattest networks with Sim-LN: a memorizer and the four-neuron generalizer.",
    "sim-bn": "Networks with Sim-BN within 1e-5 of the infimum: spikes and the generalizer.",
}


def _experiment(pair: str) -> Experiment:
    n = 116 if pair == "sim-bn" else 100
    return Experiment(
        name=f"league/{pair}",
        figure="The league at equal flatness",
        statement=_STATEMENTS[pair],
        quick=Variant(AtEqualFlatness(pair=pair, d=8, n=28), 1, _ERRORS[1:]),
        full=Variant(AtEqualFlatness(pair=pair, n=n), 10, (*_ERRORS, *EXPECTED[pair])),
        notes="m-sharpness with m = 1; ratios are memorizer / generalizer.",
    )


EXPERIMENTS = tuple(map(_experiment, PAIRS))
