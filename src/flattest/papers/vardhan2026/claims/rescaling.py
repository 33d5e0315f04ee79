"""Definition 1, Proposition 1, Lemmas 1, 3, 4 and Appendix B.2: the rescaling symmetry."""

from functools import partial

import numpy as np
from scipy.optimize import minimize

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, claim, every, provided, worst
from flattest.papers.vardhan2026.claims.instances import (
    DEGREES,
    fitted_exponent,
    gaussian,
    power_law,
    small_network,
    unit_weights,
)
from flattest.rescaling.two_layer import Masses, masses


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


@universal(
    "vardhan2026/appendix-b.2/corrected",
    "No interpolator can be made flatter by rescaling than S_min, which its orbit attains.",
    source="Appendix B.2, last sentence",
    reading="as corrected",
    refuted_by="scales b with a trace below S_min",
    least=1.0,
    attained=True,
    evaluations=3000,
    evidence="proof",
)
def appendix_b2_corrected(factor=1.0) -> Plan:
    """Proof: each b_j has a term b_j^{2c} A_j + b_j^{−2} a_j² B_j of its own, least where its
    derivative is 0, b_j^{2c+2} = a_j² B_j/(c A_j), which is S_min."""

    def ratio(orbit: Masses, z: np.ndarray) -> float:
        return orbit.trace(np.exp(np.clip(z, -50, 50))) / (factor * orbit.least())

    for name, c in DEGREES.items():
        orbit = masses(*small_network(name, seed=2))
        yield Family(f"c = {c}, width 5", 5, partial(ratio, orbit))


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


def _lemma_1_constants(
    name: str, factor: float, d: int, n: int, seed: int
) -> tuple[np.ndarray, float]:
    """S_min / (d^{c/(c+1)} ‖a‖_p^p) of 50 single neurons, and its limit as n, d → ∞."""
    c = DEGREES[name]
    omega = ft.orbit_weights(unit_weights(50, d, seed), gaussian(n, d, seed), name)
    # E σ² and E σ′² of a standard normal: ½ E|t|^{2c} and its derivative's for relu^c.
    half = 1.0 if name == "quadratic" else 0.5
    moments = {2: 1.0, 4: 3.0, 6: 15.0}
    square, slope = half * moments[2 * c], half * c**2 * (moments[2 * c - 2] if c > 1 else 1.0)
    limit = 2 * (c + 1) * c ** (-c / (c + 1)) * square ** (1 / (c + 1)) * slope ** (c / (c + 1))
    return omega / d ** (c / (c + 1)), factor * limit


@claim(
    "vardhan2026/lemma-1/drawn",
    "For unit w_j drawn independently of the data S_min ≍ d^{c/(c+1)} ‖a‖_p^p with p = 2c/(c+1); "
    "the constant tends to 2(c+1) c^{−c/(c+1)} (E σ²)^{1/(c+1)} (E σ′²)^{c/(c+1)}, 2 for ReLU.",
    source="Lemma 1",
    evidence="scaling law",
    of=every,
)
def lemma_1(factor=1.0) -> Verdicts:
    def distance(name: str, n: int, seed: int) -> float:
        value, limit = _lemma_1_constants(name, 1.0, n, n, seed)
        return float(np.sqrt(np.mean((value / limit - 1) ** 2)))

    for name in ("relu", "quadratic"):
        note = f"exponent in n of a neuron's distance from the constant, {name}, d = n to 800"
        yield power_law(partial(distance, name), (100, 200, 400, 800), 3, -0.5, 0.2, note)
        values, limit = _lemma_1_constants(name, factor, 400, 5000, 0)
        note = "mean over 50 neurons, d = 400, n = 5000; c = 1, 2"
        yield equal(values.mean(), limit, 8e-3, note)


@claim(
    "vardhan2026/lemma-1/learned-as-printed",
    "S_min ≍ d^{c/(c+1)} ‖a‖_p^p for every interpolator with unit inner weights: nothing is "
    "assumed of them.",
    source="Lemma 1, and the remark after it",
    evidence="certificate",
    reading="as printed",
)
def lemma_1_learned_printed() -> Verdict:
    """`bad_twin` with a spread of √m: S_min stays, ‖a‖₁ for unit w_j is of order √m."""

    def share(n: int, seed: int) -> float:
        data = ft.SingleIndex(2 * n, link="relu").draw(n, seed)
        made = ft.bad_twin(data, width=n, spread=np.sqrt(n))
        unit = made.params["W2"] * np.linalg.norm(made.params["W1"], axis=1)
        return made.certificate.value / (np.sqrt(data.d) * np.abs(unit).sum())

    slope, interval = fitted_exponent(share, (32, 64, 128), 3)
    note = "exponent in n of S_min / (√d ‖a‖₁) for bad_twin with spread √m, ReLU, d = 2n, m = n"
    return at_least(slope, 0, 0.1, note, seeds=3, interval=interval)


@claim(
    "vardhan2026/lemma-1/learned-corrected",
    "For every interpolator S_min is Lemma 3's sum; for n < d no multiple of ‖a‖_p^p bounds it "
    "from below: a unit neuron with w·x_i = 0 for all i costs nothing (c > 1).",
    source="Lemma 1, read for all inner weights",
    evidence="certificate",
    reading="as corrected",
)
def lemma_1_learned_corrected() -> Verdict:
    """For n < d there is a unit w with w·x_i = 0 for all i, and σ(0) = σ′(0) = 0 for c > 1."""
    x = gaussian(5, 6, seed=0)
    w = np.linalg.svd(x)[2][-1]
    data = ft.Dataset(x, np.zeros(5))
    at = masses(ft.MLP(1, activation="quadratic"), {"W1": w[None], "W2": np.ones(1)}, data)
    return at_most(at.least(), 0, 1e-12, "S_min of a unit neuron with a = 1, c = 2, n = 5, d = 6")


@claim(
    "vardhan2026/lemma-4",
    "For unit w_j drawn independently of the data, all A_j are of order 1 and all B_j of order d, "
    "uniformly over the neurons (for n < d a unit w with w·x_i = 0 for all i has A = 0).",
    source="Lemma 4",
    evidence="scaling law",
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
