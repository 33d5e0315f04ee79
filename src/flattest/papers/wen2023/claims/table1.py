"""Table 1 and the headings of sections 4 and 5: what 1-SAM finds, by training.

Figures 1b, 4b and 6b at the paper's width, d and n with fewer epochs; Figure 2a at width 100 and
d = 20. `flattest run 'wen2023/*'` has the panels themselves.
"""

from functools import cache

import numpy as np

from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.flatness.certification import certify, population_error
from flattest.ledger.claim import assuming, claim, provided
from flattest.papers.wen2023.constructions import memorizer, sim_ln_memorizer
from flattest.problem.data import Xor
from flattest.problem.models import MLP
from flattest.training.algorithms import Phase, sam
from flattest.training.log import Log
from flattest.training.train import train

RUNS: dict[str, tuple[MLP, int, int, tuple[Phase, ...]]] = {
    "no bias": (MLP(500), 30, 3, (sam(0.01, 0.05, epochs=6_000),)),
    "bias": (MLP(500, bias=True), 30, 3, (sam(0.01, 0.05, epochs=20_000),)),
    "sim_bn": (
        MLP(100, bias=True, norm="sim_bn"),
        20,
        2,
        (sam(0.005, 0.1, epochs=3_000),),
    ),
    "sim_ln": (
        MLP(500, bias=True, norm="sim_ln"),
        30,
        5,
        tuple(sam(0.01, rho, epochs=500, project=10.0) for rho in (0.1, 0.5, 1.0)),
    ),
}


@cache
def trained(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Test and training error, and sharpness over its bound, at the end of 1-SAM; one a seed."""
    model, d, seeds, phases = RUNS[name]
    ends = []
    for seed in range(seeds):
        run = train(model, Xor(d).draw(100, seed), phases, seed=seed, log=Log(points=4))
        last = {key: values[-1] for key, values in run.series.items()}
        ends.append((last["test_error"], last["train_error"], last["sharpness"] / last["bound"]))
    errors, train_errors, ratios = np.array(ends).T
    return errors, train_errors, ratios


def _fitted(name: str) -> Verdict:
    return at_most(trained(name)[1].max(), 0.0, 0.0, "largest training error")


def _flattest(name: str) -> tuple[Verdict, Verdict]:
    """Below its bound by as much as the outputs miss the labels; far below, it has collapsed."""
    ratios = trained(name)[2]
    note = "trace over its lower bound"
    return at_least(ratios.min(), 0.95, 0.0, note), at_most(ratios.max(), 1.05, 0.0, note)


def _error_at_most(name: str, error: float) -> Verdict:
    errors, _, ratios = trained(name)
    note = f"largest test error; trace / bound for interpolators {_range(ratios)}"
    return at_most(errors.max(), error, 0.0, note, seeds=len(errors))


def _error_at_least(name: str, error: float) -> Verdict:
    errors, _, ratios = trained(name)
    note = f"least test error; trace / bound for interpolators {_range(ratios)}"
    return at_least(errors.min(), error, 0.0, note, seeds=len(errors))


def _range(ratios: np.ndarray) -> str:
    return f"{ratios.min():.3f}–{ratios.max():.3f}"


def _generalizes(name: str, error: float) -> Verdict:
    return provided(_error_at_most(name, error), _fitted(name))


def _fails_to_generalize(name: str, error: float) -> Verdict:
    return provided(_error_at_least(name, error), _fitted(name), *_flattest(name))


@claim(
    "wen2023/table-1/no-bias-algorithm",
    "Without bias 1-SAM generalizes (✓).",
    source="Table 1, row 1; Figure 1b",
    evidence="figure",
    cost="full",
)
def no_bias_algorithm() -> Verdict:
    return _generalizes("no bias", 0.01)


@claim(
    "wen2023/table-1/bias-algorithm",
    "With bias 1-SAM reaches the least trace and does not generalize (✗).",
    source="Table 1, row 2; Figure 4b",
    evidence="figure",
    cost="full",
)
def bias_algorithm() -> Verdict:
    return _fails_to_generalize("bias", 0.15)


@claim(
    "wen2023/table-1/sim-bn-algorithm",
    "With Sim-BN 1-SAM generalizes (✓).",
    source="Table 1, row 3; Figure 2a",
    evidence="figure",
    cost="full",
)
def sim_bn_algorithm() -> Verdict:
    return _generalizes("sim_bn", 0.01)


@claim(
    "wen2023/table-1/sim-ln-algorithm",
    "With Sim-LN 1-SAM generalizes almost perfectly (✓).",
    source="Table 1, row 4; Figure 6b",
    evidence="figure",
    cost="full",
)
def sim_ln_algorithm() -> Verdict:
    return _generalizes("sim_ln", 0.05)


def _memorizer_error(build, factor: float) -> Verdict:
    data = Xor(12, distinct=True).draw(100, 0)
    model, params, _ = build(data)
    error = population_error(model, params, data).value
    printed = factor * (1 - data.n / 2**data.d)
    flattest = equal(certify(model, params, data).flattest, True, 0.0, "certified flattest")
    return provided(equal(error, printed, 1e-12, "d = 12, n = 100"), flattest)


@claim(
    "wen2023/table-1/bias-flattest",
    "With bias there is a flattest minimizer with zero-one error 1 − n/2^d (✗).",
    source="Table 1, row 2",
    evidence="certificate",
)
def bias_flattest(factor=1.0) -> Verdict:
    return _memorizer_error(memorizer, factor)


@claim(
    "wen2023/table-1/sim-ln-flattest",
    "With Sim-LN there is a flattest minimizer with zero-one error 1 − n/2^d (✗).",
    source="Table 1, row 4",
    evidence="certificate",
)
def sim_ln_flattest(factor=1.0) -> Verdict:
    return _memorizer_error(sim_ln_memorizer, factor)


@claim(
    "wen2023/section-4/heading-as-printed",
    "Both flattest generalizing and non-generalizing models exist, and SAM finds the former.",
    source="Heading of section 4, both versions",
    evidence="figure",
    reading="as printed",
    cost="full",
)
def section_4_as_printed() -> Verdict:
    return assuming(_error_at_most("bias", 0.01), _fitted("bias"), *_flattest("bias"))


@claim(
    "wen2023/section-4/heading-corrected",
    "Both flattest generalizing and non-generalizing models exist, and SAM finds the latter.",
    source="Heading of section 4, both versions",
    evidence="figure",
    reading="as corrected",
    cost="full",
)
def section_4_corrected() -> Verdict:
    return _fails_to_generalize("bias", 0.15)


@claim(
    "wen2023/section-5/heading-as-printed",
    "Both flattest generalizing and non-generalizing models exist, and SAM finds the latter.",
    source="Heading of section 5, NeurIPS version",
    evidence="figure",
    reading="as printed",
    cost="full",
)
def section_5_as_printed() -> Verdict:
    return assuming(_error_at_least("sim_ln", 0.15), _fitted("sim_ln"))


@claim(
    "wen2023/section-5/heading-corrected",
    "Both flattest generalizing and non-generalizing models exist, and SAM finds the former.",
    source="Heading of section 5, NeurIPS version",
    evidence="figure",
    reading="as corrected",
    cost="full",
)
def section_5_corrected() -> Verdict:
    return _generalizes("sim_ln", 0.05)
