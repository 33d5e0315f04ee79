"""The league of measures: what has been proposed for "how sharp", of one network from one call.

`MEASURES` is the table: formula, source, cost; `league_measures` has the computations. Which
symmetries of a network leave a measure as it is has been tried on networks, not copied from papers
(`studies/league`). A measure that is a maximum over a ball is a lower bound, found by ascent; one
that has no meaning for a network says why in `League.missing`.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from flattest.curvature.result import Interrupted, Quantity, known_so_far
from flattest.curvature.sharpness import Function, Maker, operator_of
from flattest.curvature.spectrum import SpectralDensity
from flattest.errors import FlattestError, unknown
from flattest.flatness import league_measures as computed
from flattest.flatness.league_measures import LeagueSettings, NotDefined, Subject


@dataclass(frozen=True)
class Measure:
    """One measure: how it is computed of a subject, and what a reader has to know of it."""

    name: str
    formula: str
    source: str
    cost: str
    compute: Callable[[Subject], Quantity] = field(repr=False)


_TABLE = (
    Measure(
        "trace",
        "Tr ∇²L",
        "wen2023, Lemma 4.1",
        "one pass over per-sample gradients",
        computed.trace,
    ),
    Measure(
        "gauss_newton_trace",
        "(1/n) Σ_i Tr J_iᵀ ∇²_f ℓ_i J_i",
        "Schraudolph 2002",
        "one pass over per-sample gradients",
        computed.gauss_newton_trace,
    ),
    Measure(
        "least_trace",
        "min Tr ∇²L over rescalings of units",
        "flattest (matrix balancing, Osborne 1960)",
        "the diagonal, then seconds for millions of weights",
        computed.least_trace,
    ),
    Measure(
        "minimum_sharpness",
        "min Tr ∇²L over rescalings of layers; D (∏ Tr H_l)^{1/D} without biases",
        "Ibayashi et al. 2021",
        "the diagonal",
        computed.minimum_sharpness,
    ),
    Measure(
        "top_eigenvalue", "λ_max(∇²L)", "Keskar et al. 2017", "products", computed.top_eigenvalue
    ),
    Measure(
        "top_eigenvalues",
        "the sum of the k largest eigenvalues of ∇²L",
        "Sagun et al. 2017",
        "products",
        computed.top_eigenvalues,
    ),
    Measure(
        "spectrum",
        "√(mean λ²) of the spectral density",
        "Ghorbani et al. 2019; Ubaru et al. 2017",
        "probes × 64 products",
        computed.spectrum,
    ),
    Measure(
        "adaptive_average",
        "(ρ²/2) Σ w² H_ww",
        "Kwon et al. 2021; Andriushchenko et al. 2023",
        "the diagonal",
        computed.adaptive_average,
    ),
    Measure(
        "adaptive_worst",
        "max L(w + |w| ⊙ ε) − L(w) over ‖ε‖ ≤ ρ",
        "Kwon et al. 2021; Andriushchenko et al. 2023",
        "2 × steps gradients",
        computed.adaptive_worst,
    ),
    Measure(
        "ball_sharpness",
        "max L(w + δ) − L(w) over ‖δ‖ ≤ ρ",
        "Keskar et al. 2017; Foret et al. 2021",
        "2 × steps gradients",
        computed.ball,
    ),
    Measure(
        "m_sharpness",
        "mean over batches B of m samples of max L_B(w + δ) − L_B(w) over ‖δ‖ ≤ ρ",
        "Foret et al. 2021",
        "2 × steps passes",
        computed.m_sharpness,
    ),
    Measure(
        "relative_flatness",
        "Σ_ss′ ⟨w_s, w_s′⟩ Tr H_ss′ of the layer that feeds the outputs",
        "Petzka et al. 2021",
        "a product for each weight of the layer",
        computed.relative_flatness,
    ),
    Measure(
        "fisher_rao",
        "wᵀ G w, G the Gauss–Newton matrix (Fisher's, labels drawn from the model)",
        "Liang et al. 2019",
        "one product",
        computed.fisher_rao,
    ),
    Measure(
        "normalized_sharpness",
        "Σ over weights of min Σ_ij H_ij σ_i² σ′_j² + W_ij² / (σ_i² σ′_j²) over σ, σ′ > 0",
        "Tsuzuku et al. 2020",
        "the diagonal",
        computed.normalized_sharpness,
    ),
    Measure(
        "pac_bayes",
        "1/σ²: L rises by `increase` on average under noise N(0, σ²)",
        "Jiang et al. 2020, with L for the zero-one error",
        "about 17 × draws losses",
        computed.pac_bayes,
    ),
    Measure(
        "pac_bayes_magnitude",
        "1/σ²: L rises by `increase` on average under noise N(0, σ² w²)",
        "Jiang et al. 2020, with L for the zero-one error",
        "about 17 × draws losses",
        computed.pac_bayes_magnitude,
    ),
    Measure("gradient_norm", "‖∇L‖", "Zhao et al. 2022", "one gradient", computed.gradient_norm),
    Measure(
        "batch_sharpness",
        "mean over batches B of ∇L_Bᵀ ∇²L_B ∇L_B / ‖∇L_B‖², against 2/η",
        "Andreyev and Beneventano 2025",
        "one product with each batch",
        computed.batch_sharpness,
    ),
    Measure("edge", "η λ_max / 2", "Cohen et al. 2021", "products", computed.edge),
)
MEASURES: dict[str, Measure] = {measure.name: measure for measure in _TABLE}
"""All measures by name."""


@dataclass(frozen=True)
class League:
    """The measures of one network: `values` by name, with the way each was found, and why others
    are `missing`: `partial` where Ctrl-C ended it. `density` is the spectral density, where it was
    asked for."""

    values: dict[str, Quantity]
    missing: dict[str, str]
    settings: LeagueSettings
    mean_loss: float
    density: SpectralDensity | None = field(default=None, repr=False)
    partial: bool = False

    def __getitem__(self, name: str) -> float:
        if name in self.missing:
            raise FlattestError(f"There is no {name}: {self.missing[name]}.")
        if name not in self.values:
            raise unknown("measure", name, self.values)
        return self.values[name].value

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        values = {
            name: {"value": q.value, "stderr": q.stderr, "route": q.route}
            for name, q in self.values.items()
        }
        settings = {f.name: getattr(self.settings, f.name) for f in fields(self.settings)}
        missing = dict(self.missing)
        return {
            "values": values,
            "missing": missing,
            "settings": settings,
            "mean_loss": self.mean_loss,
        }

    def json(self) -> str:
        return json.dumps(self.as_dict(), indent=1)

    def __str__(self) -> str:
        width = max(map(len, MEASURES)) + 2
        rows = []
        for name in MEASURES:
            if (q := self.values.get(name)) is not None:
                error = f" ± {q.stderr:.2g}" if q.stderr else ""
                rows.append(f"{name:<{width}}{f'{q.value:.8g}{error}':<26}{q.route}")
            elif name in self.missing:
                rows.append(f"{name:<{width}}{'-':<26}{self.missing[name]}")
        return "\n".join(rows)


@known_so_far
def league(
    function: Function | Maker,
    params: Any,
    data: Any,
    loss: Any = "mse",
    *,
    only: Iterable[str] | None = None,
    settings: LeagueSettings | None = None,
) -> League:
    """The measures of a network on `data`, all of them or `only` some; model, data and loss are
    those of `flattest.measure`. `settings`, a `LeagueSettings`, has radii, batch size, steps of
    ascent and so on. What several measures share is computed once.

    A maximum over a ball (adaptive_worst, ball_sharpness, m_sharpness) is a lower bound by ascent,
    in the number of steps that its route states; other values are exact or have a standard error.
    """
    chosen = list(MEASURES) if only is None else list(only)
    for name in chosen:
        if name not in MEASURES:
            raise unknown("measure", name, MEASURES)
    settings = LeagueSettings() if settings is None else settings
    subject = Subject(operator_of(function, params, data, loss), settings)
    values, missing = {}, {}
    loss_now = subject.op.mean_loss()
    try:
        for name in chosen:
            try:
                values[name] = MEASURES[name].compute(subject)
            except NotDefined as reason:
                missing[name] = str(reason)
    except KeyboardInterrupt:
        left = [name for name in chosen if name not in values and name not in missing]
        missing |= dict.fromkeys(left, "interrupted")
        raise Interrupted(League(values, missing, settings, loss_now, partial=True)) from None
    density = subject.density if "spectrum" in values else None
    return League(values, missing, settings, loss_now, density)
