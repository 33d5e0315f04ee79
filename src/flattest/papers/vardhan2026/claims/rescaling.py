"""Definition 1, Proposition 1, Lemmas 1, 3, 4 and Appendix B.2: the rescaling symmetry."""

import numpy as np
from scipy.optimize import minimize

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.ledger.claim import Verdicts, claim, provided, worst
from flattest.papers.vardhan2026.claims.instances import (
    DEGREES,
    gaussian,
    small_network,
    unit_weights,
)
from flattest.rescaling.two_layer import masses


@claim(
    "vardhan2026/definition-1",
    "w_j → b_j w_j, a_j → b_j^{−c} a_j leaves the network's output unchanged.",
    source="Definition 1",
    evidence="identity",
    of=worst,
)
def definition_1(exponent=1.0) -> Verdicts:
    for name in DEGREES:
        model, params, data = small_network(name, seed=0)
        scales = np.random.default_rng(1).uniform(1.5, 3, model.width)
        moved = ft.rescaled(model, params, scales)
        # `exponent` multiplies c, so that another power of b_j would be noticed.
        moved["W2"] = moved["W2"] * scales ** (model.homogeneity * (1 - exponent))
        change = np.abs(ft.predict(model, moved, data.x, data.x) - data.y).max()
        yield at_most(change / np.abs(data.y).max(), 0, 1e-12, "largest relative change")


@claim(
    "vardhan2026/proposition-1",
    "Rescaling by b leaves f and changes the trace, to Σ [b_j^{2c} A_j + b_j^{−2} B_j]; "
    "any interpolator can be made as sharp as one likes.",
    source="Proposition 1, Appendix B.2",
    evidence="identity",
)
def proposition_1(factor=1.0) -> Verdict:
    parts = []
    for name in DEGREES:
        model, params, data = small_network(name, seed=1)
        scales = np.random.default_rng(2).uniform(0.3, 3, model.width)
        measured = float(ft.trace(model, ft.rescaled(model, params, scales), data))
        predicted = factor * masses(model, params, data).trace(scales)
        parts.append(equal(measured, predicted, 1e-9, "trace at random scales, c = 1, 2, 3"))
    sharp = float(ft.trace(model, ft.sharpened(model, params, data, 1e12), data))
    return provided(worst(parts), at_least(sharp, 1e12, 1e-9))


@claim(
    "vardhan2026/appendix-b.2/as-printed",
    "The trace is convex in each b_j, hence no interpolator can be made flatter by rescaling.",
    source="Appendix B.2, last sentence (section 1 says the opposite)",
    evidence="identity",
    reading="as printed",
)
def appendix_b2_printed() -> Verdict:
    model, params, data = small_network("relu", seed=2)
    flattest = ft.flattest_rescaling(model, params, data)
    note = "trace after the best rescaling against that of the network given"
    return at_least(float(ft.trace(model, flattest.params, data)), flattest.original, 1e-9, note)


@claim(
    "vardhan2026/appendix-b.2/corrected",
    "No interpolator can be made flatter by rescaling than S_min, which its orbit attains.",
    source="Appendix B.2, last sentence",
    evidence="inequality",
    reading="as corrected",
)
def appendix_b2_corrected(factor=1.0) -> Verdict:
    model, params, data = small_network("relu", seed=2)
    least = ft.flattest_rescaling(model, params, data).value
    rng = np.random.default_rng(3)
    orbit = masses(model, params, data)
    tries = [orbit.trace(np.exp(t)) for t in rng.normal(size=(1000, 5))]
    reached = float(ft.trace(model, ft.flattest_rescaling(model, params, data).params, data))
    return provided(
        equal(reached, factor * least, 1e-9, "trace at the flattest rescaling against S_min"),
        at_least(min(tries), least, 1e-12, "1000 random rescalings"),
    )


@claim(
    "vardhan2026/lemma-3",
    "min over b of the trace: 2(c+1) c^{−c/(c+1)} Σ A_j^{1/(c+1)} B_j^{c/(c+1)} |a_j|^{2c/(c+1)}.",
    source="Lemma 3, Eq. (4)",
    evidence="identity",
    of=worst,
)
def lemma_3(factor=2.0) -> Verdicts:
    for name, c in DEGREES.items():
        model, params, data = small_network(name, seed=3)
        h = data.x @ params["W1"].T
        A = np.mean(model.sigma.value(h) ** 2, axis=0)
        B = np.mean(model.sigma.slope(h) ** 2 * np.sum(data.x**2, axis=1)[:, None], axis=0)
        terms = A ** (1 / (c + 1)) * B ** (c / (c + 1)) * np.abs(params["W2"]) ** (2 * c / (c + 1))
        formula = factor * (c + 1) * c ** (-c / (c + 1)) * terms.sum()
        orbit = masses(model, params, data)
        found = minimize(lambda t, o=orbit: np.log(o.trace(np.exp(t))), np.zeros(5), tol=1e-13)
        yield equal(np.exp(found.fun), formula, 1e-9, "numerical minimum, c = 1, 2, 3")


def _lemma_1_constant(name: str, factor: float) -> tuple[float, float]:
    """S_min / (d^{c/(c+1)} ‖a‖_p^p) at d = 400, and its limit as n, d → ∞."""
    c = DEGREES[name]
    d, n = 400, 5000
    omega = ft.orbit_weights(unit_weights(50, d, seed=0), gaussian(n, d, seed=0), name)
    # E σ² and E σ′² of a standard normal: ½ E|t|^{2c} and its derivative's for relu^c.
    half = 1.0 if name == "quadratic" else 0.5
    moments = {2: 1.0, 4: 3.0, 6: 15.0}
    square, slope = half * moments[2 * c], half * c**2 * (moments[2 * c - 2] if c > 1 else 1.0)
    limit = 2 * (c + 1) * c ** (-c / (c + 1)) * square ** (1 / (c + 1)) * slope ** (c / (c + 1))
    return float(omega.mean() / d ** (c / (c + 1))), factor * limit


@claim(
    "vardhan2026/lemma-1",
    "For unit w_j, S_min ≍ d^{c/(c+1)} ‖a‖_p^p with p = 2c/(c+1); the constant tends to "
    "2(c+1) c^{−c/(c+1)} (E σ²)^{1/(c+1)} (E σ′²)^{c/(c+1)}, which is 2 for ReLU.",
    source="Lemma 1",
    evidence="sample",
)
def lemma_1(factor=1.0) -> Verdict:
    note = "mean over 50 neurons, d = 400, n = 5000; c = 1, 2"
    return worst(
        equal(*_lemma_1_constant(name, factor), 8e-3, note) for name in ("relu", "quadratic")
    )


@claim(
    "vardhan2026/lemma-4",
    "For unit w_j, all A_j are of order 1 and all B_j of order d, uniformly over the neurons.",
    source="Lemma 4",
    evidence="sample",
)
def lemma_4() -> Verdict:
    def spread(name: str, d: int) -> float:
        omega = ft.orbit_weights(unit_weights(4 * d, d, seed=0), gaussian(2 * d, d, seed=0), name)
        return float(omega.max() / omega.min())

    # Logarithms are allowed; a power d^{1/4} is not.
    note = "the largest over the smallest A_j^{1/(c+1)} B_j^{c/(c+1)} from d = 50 to 200 (n = 2d, "
    note += "m = 4d; c = 1, 2, 3) grows less than d^{1/4}"
    return worst(
        at_most(spread(name, 200), 4**0.25 * spread(name, 50), 0.0, note) for name in DEGREES
    )
