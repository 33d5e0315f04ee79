"""Section 1.2 and Appendix D.6: networks with a first-layer bias."""

import numpy as np
from scipy import stats
from scipy.integrate import quad

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, claim, provided, worst
from flattest.papers.vardhan2026.claims.instances import small_network
from flattest.problem.models import Params
from flattest.problem.multi_index import signal_power
from flattest.rescaling.two_layer import masses

D, N, SEEDS = 50, 100, 20
TEACHER = ft.SingleIndex(D, link="relu")


def _margins(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """w_i = x_i/‖x_i‖, w_i·x_i, and by how much that exceeds every other w_i·x_j.

    Positive margins make every point an extreme point of their convex hull.
    """
    W = x / np.linalg.norm(x, axis=1, keepdims=True)
    others = x @ W.T
    own = np.diag(others).copy()
    np.fill_diagonal(others, -np.inf)
    return W, own, own - others.max(axis=0)


def least_extreme() -> tuple[float, str]:
    """The least probability that all points are extreme, with a note: `extreme_points_corrected`'s
    bound at d = 50, n = 100, and how often it was so."""
    fails = N * (N - 1) * stats.t.sf(np.sqrt(D), D)
    met = np.mean([_margins(TEACHER.draw(N, seed).x)[2].min() > 0 for seed in range(SEEDS)])
    note = f"least probability that all points are extreme, d = {D}, n = {N}; so in {met:.0%} of "
    return 1 - float(fails), f"{note}{SEEDS} draws"


@claim(
    "vardhan2026/section-1.2-extreme-points/as-printed",
    "For n ≍ d Gaussian features, that every point is an extreme point of the convex hull "
    "does not occur with high probability.",
    source="Section 1.2",
    evidence="identity",
    reading="as printed",
)
def extreme_points_as_printed() -> Verdict:
    least, note = least_extreme()
    return at_most(least, 0.5, 0.0, note)


@universal(
    "vardhan2026/section-1.2-extreme-points/corrected",
    "For n ≍ d Gaussian features every point is extreme with high probability: with "
    "T of Student's law, d degrees, it fails with probability ≤ n(n−1) P(T ≥ √d).",
    source="Section 1.2",
    refuted_by="a d at which P(x_i·x_j ≥ ‖x_i‖²), by integration over ‖x_i‖, is above P(T ≥ √d)",
    largest=1.0,
    attained=True,
    tolerance=1e-6,
    evidence="proof",
    reading="as corrected",
    evaluations=100,
)
def extreme_points_corrected() -> Plan:
    """Proof: x_i is extreme if x_i·x_j < ‖x_i‖² for all j ≠ i. x_j·x_i/‖x_i‖ is a standard normal
    g, independent of ‖x_i‖, and g ≥ ‖x_i‖ where T = g/(‖x_i‖/√d) ≥ √d: sum over all pairs."""
    least, note = least_extreme()
    yield at_least(least, 0.999, 0.0, note)

    def share(z: np.ndarray) -> float:
        d = float(np.exp(np.clip(z[0], 0, 5)))
        # P(g ≥ r) against the density of ‖x_i‖ at r, whose product is largest near √(d/2).
        law = lambda r: np.exp(stats.norm.logsf(r) + stats.chi.logpdf(r, d))  # noqa: E731
        pair = quad(law, 0, np.sqrt(d) + 20, points=[np.sqrt(d / 2)], epsabs=0, limit=200)[0]
        return pair / float(stats.t.sf(np.sqrt(d), d))

    yield Family("any real d from 1 to 148", 1, share)


def _memorizer(data: ft.Dataset) -> tuple[ft.MLP, Params]:
    """wen2023's Theorem 4.1 on Gaussian points: neuron i fires on x_i alone."""
    W, own, margins = _margins(data.x)
    heights = margins / 2
    return ft.MLP(data.n, bias=True), {"W1": W, "b1": heights - own, "W2": data.y / heights}


@claim(
    "vardhan2026/section-1.2-bias/as-printed",
    "For Gaussian features the results extend to ReLU networks with bias: the flattest "
    "interpolator has bias 0, and generalizes.",
    source="Section 1.2, Appendix D.6",
    evidence="certificate",
    reading="as printed",
)
def bias_printed() -> Verdict:
    data = TEACHER.draw(N, 0)
    memorizer = ft.flattest_rescaling(*_memorizer(data), data).value
    params = {"W1": TEACHER.directions, "b1": np.zeros(1), "W2": np.ones(1)}
    teacher = ft.flattest_rescaling(ft.MLP(1, bias=True), params, data).value
    note = "S_min of the network that memorizes against that of the teacher, noiseless, n = 2d"
    return at_least(memorizer, teacher, 0.0, note)


@claim(
    "vardhan2026/section-1.2-bias/corrected",
    "With a first-layer bias the network that memorizes Gaussian points attains the certified "
    "least trace (4/n) Σ √(‖x_i‖²+1) |y_i|, and its population loss is the whole signal.",
    source="Section 1.2, Appendix D.6",
    evidence="certificate",
    reading="as corrected",
)
def bias_corrected(factor=1.0) -> Verdict:
    data = TEACHER.draw(N, 0)
    model, params = _memorizer(data)
    flattest = ft.flattest_rescaling(model, params, data)
    fresh = TEACHER.population(2000, 0)
    loss = np.mean((np.asarray(model.apply(flattest.params, fresh.x)) - fresh.y) ** 2)
    miss = np.abs(np.asarray(model.apply(flattest.params, data.x)) - data.y).max()
    return provided(
        equal(
            float(ft.trace(model, flattest.params, data)),
            factor * ft.lower_bound(model, data).value,
            1e-9,
            "trace of the network that memorizes against the certified bound, n = 2d",
        ),
        at_most(miss, 0, 1e-10),
        at_least(loss / signal_power(TEACHER), 1, 0.1),
    )


def _flatness_at_bias(size: float, name: str, seed: int) -> float:
    """S_min of the flattest interpolator with inner weights of ρ = 0.7 and every bias = size."""
    distribution = ft.SumOfSingleIndex(50, 5, name, 0.01)
    data = distribution.draw(100, seed)
    W = ft.inner_weights(distribution.directions, 300, 0.7, seed)
    model = ft.MLP(300, activation=name, bias=True)
    params = {"W1": W, "b1": np.full(300, size), "W2": np.ones(300)}
    phi = np.asarray(model.first_layer(params, data.x))
    omega = masses(model, params, ft.Dataset(data.x, phi.sum(axis=1))).terms()
    return ft.flattest_interpolator(phi, data.y, ft.norm_exponent(name), omega).value


@claim(
    "vardhan2026/appendix-d.6/as-printed",
    "For activations without a zero piece S_min is least when the inner-layer bias is 0.",
    source="Appendix D.6",
    evidence="sample",
    reading="as printed",
)
def appendix_d6_printed() -> Verdict:
    ratios = [
        _flatness_at_bias(-0.3, "leaky_relu:0.1", seed)
        / _flatness_at_bias(0.0, "leaky_relu:0.1", seed)
        for seed in range(3)
    ]
    note = "S_min with all biases −0.3 against 0, LeakyReLU, the same inner weights and data"
    return at_least(np.mean(ratios), 1, 0.0, note, seeds=3)


@claim(
    "vardhan2026/appendix-d.6/corrected",
    "With a bias Lemma 3 holds with ‖x‖² + 1 in place of ‖x‖²; which bias is flattest depends on "
    "the labels.",
    source="Appendix D.6",
    evidence="identity",
    reading="as corrected",
    of=worst,
)
def appendix_d6_corrected(one=1.0) -> Verdicts:
    for name, c in (("relu", 1), ("leaky_relu:0.1", 1), ("quadratic", 2)):
        model, params, data = small_network(name, seed=0, bias=True)
        h = data.x @ params["W1"].T + params["b1"]
        sizes = np.sum(data.x**2, axis=1) + one
        A = np.mean(model.sigma.value(h) ** 2, axis=0)
        B = sizes @ model.sigma.slope(h) ** 2 / data.n
        p = 2 * c / (c + 1)
        terms = A ** (1 / (c + 1)) * B ** (c / (c + 1)) * np.abs(params["W2"]) ** p
        formula = 2 * (c + 1) * c ** (-c / (c + 1)) * terms.sum()
        flattest = ft.flattest_rescaling(model, params, data).params
        yield equal(float(ft.trace(model, flattest, data)), formula, 1e-9, "c = 1, 2")
