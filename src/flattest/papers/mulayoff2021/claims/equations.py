"""The equations of the supplement, misprints as printed and as corrected."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, claim, misprint, provided, worst
from flattest.papers.mulayoff2021.claims.instances import (
    absolute_value,
    architecture,
    decoded,
    families,
    families_with_knots_on_data,
    flattest,
    mode_hessians,
    networks,
    networks_with_knots_on_data,
    own_data,
    random_inputs,
    random_network,
)
from flattest.problem.randomness import generator
from flattest.rescaling.top_eigenvalue import orbit_pencil
from flattest.stability.functions import UnivariateNetwork
from flattest.stability.modes import (
    gram_top_eigenvalue,
    strongly_stable_sharpness,
    tangent_features,
)
from flattest.stability.weights import g


@claim(
    "mulayoff2021/g",
    "g = min(g⁻, g⁺) with g⁺ = P(X>x)² E[X−x | X>x] √(1 + E[X | X>x]²), and 0 outside the data.",
    source="(S38), (S39)",
    evidence="identity",
)
def g_definition(power=2.0) -> Verdict:
    rng = generator(0, "mulayoff2021/g")
    inputs = random_inputs(rng, 9, 3.0) + 0.7
    at = rng.uniform(-4, 5, 400)
    expected = np.array([_g_by_definition(x, inputs, power) for x in at])
    return equal(np.abs(g(at, inputs) - expected).max(), 0.0, 1e-12)


def _g_by_definition(x: float, inputs: np.ndarray, power: float) -> float:
    sides = []
    for sign in (1, -1):
        X = inputs[sign * (inputs - x) > 0]
        share = X.size / inputs.size
        mean = X.mean() if X.size else 0.0
        sides.append(share**power * sign * (mean - x) * np.sqrt(1 + mean**2) if X.size else 0.0)
    return min(sides)


@misprint(
    "mulayoff2021/S41-",
    printed="f″ = Σ w1_i w2_i δ(x − τ_i).",
    corrected="f″ = Σ |w1_i| w2_i δ(x − τ_i).",
    source="Footnote of (S41)",
    evidence="identity",
)
def s41(as_printed: bool, factor=1.0) -> Verdict:
    """Against f′(0⁺) − f′(0⁻) of f = |x|, by differences."""
    network, _ = absolute_value(1.0)
    left, middle, right = network(np.array([-1.0, 0.0, 1.0]))
    jump = right - 2 * middle + left
    if as_printed:
        return equal(network.w1 @ network.w2, jump, 1e-12, "σ(x) + σ(−x) = |x|")
    return equal(factor * ft.second_derivative(network).masses.sum(), jump, 1e-12)


@claim(
    "mulayoff2021/S32",
    "∇_θ f(x) = (x w2 ⊙ I, w2 ⊙ I, (x w1 + b1) ⊙ I, 1).",
    source="(S32)",
    evidence="identity",
)
def s32() -> Verdict:
    network, x = next(networks("S32", 1))
    output = jax.jacobian(lambda theta: _outputs(theta, jnp.asarray(x)))
    difference = np.asarray(output(network.theta)).T - tangent_features(network, x)
    return equal(np.abs(difference).max(), 0.0, 1e-12, "against automatic differentiation")


def _outputs(theta, x):
    k = theta.size // 3
    active = jnp.maximum(x[:, None] * theta[:k] + theta[k : 2 * k], 0)
    return active @ theta[2 * k : 3 * k] + theta[-1]


_dense_hessian = jax.jit(
    jax.hessian(lambda theta, x, y: 0.5 * jnp.mean((_outputs(theta, x) - y) ** 2))
)


@claim(
    "mulayoff2021/S59",
    "At a global minimum with knots on data points the Hessian of mode m ∈ I is Φ_m Φ_mᵀ/n, and "
    "these are the Hessians of the regions that meet there.",
    source="(S54), (S59)",
    evidence="identity",
    of=worst,
)
def s59() -> Verdicts:
    network, x = next(networks_with_knots_on_data("S59", 1))
    data, rng = own_data(network, x), generator(1, "mulayoff2021/S59")
    known = mode_hessians(network, x)
    for _ in range(50):
        near = network.theta + 1e-10 * rng.normal(size=network.theta.size)
        H = np.asarray(_dense_hessian(near, x, data.y))
        distance = min(np.abs(H - mode).max() for mode in known)
        yield equal(distance, 0.0, 1e-7, f"{len(known)} modes, 50 points 1e-10 away")


S75_CASE = "C = 1, p/n = 0.1, η = 0.01"


def _s75(lr: float, C: float, share: float, linear: float, root: float) -> float:
    inner = 3 * share * (3 * C**2 * share + 2 / lr)
    return 2 / lr + linear * C**2 * share + root * C * np.sqrt(inner)


def _positive_root(lr: float, C: float, share: float) -> float:
    """ζ² with ζ the positive root of ζ² − αζ − 2/η, α = 2√3 C √(p/n) (S72)."""
    alpha = 2 * np.sqrt(3 * share) * C
    return ((alpha + np.sqrt(alpha**2 + 8 / lr)) / 2) ** 2


@misprint(
    "mulayoff2021/S75-",
    printed="λ_max^upper ≤ 2/η + 3C²p/n + C√(3(p/n)(3C²p/n + 2/η)).",
    corrected="λ_max^upper ≤ 2/η + 6C²p/n + 2C√(3(p/n)(3C²p/n + 2/η)).",
    source="(S75)",
    evidence="identity",
    of=worst,
)
def s75(as_printed: bool, linear=6.0, root=2.0) -> Verdicts:
    exact, factors = _positive_root(0.01, 1.0, 0.1), (3.0, 1.0) if as_printed else (linear, root)
    yield equal(_s75(0.01, 1.0, 0.1, *factors), exact, 1e-9, S75_CASE)
    if not as_printed:
        yield equal(strongly_stable_sharpness(0.01, 1.0, 0.1), exact, 1e-9, S75_CASE)


@universal(
    "mulayoff2021/S79",
    "min over implementations of λ_max^upper ≥ 1 + 2∫|f″|g, knots on data points included.",
    source="(S79)",
    refuted_by="a network with knots on inputs and λ_max^upper − 1 < 2∫|f″|g",
    least=1.0,
    evidence="proof",
    evaluations=1200,
)
def s79() -> Plan:
    """Proof: that of Lemma 4 for the mode with all toggles off, one of those over which
    λ_max^upper is the largest."""

    def ratio(network: UnivariateNetwork, x: np.ndarray) -> float:
        variation = ft.weighted_total_variation(network, x)
        above = ft.upper_top_eigenvalue(network, own_data(network, x)).value - 1
        return above / (2 * variation) if variation > 1e-3 else float("nan")

    yield from families_with_knots_on_data(ratio)


@universal(
    "mulayoff2021/S86",
    "min over β of λ_max equals a max–min lower bound, which proves the global optimum.",
    source="(S84)–(S86)",
    refuted_by="a network and inputs at which the solver cannot bring the two within 1e-6",
    largest=0.0,
    tolerance=1e-6,
    evidence="proof",
    evaluations=240,
)
def s86() -> Plan:
    """Proof: with p_i = β_i^{−2}, q_i = β_i² the matrix Φ(β)ᵀΦ(β)/n is linear in (p, q), and as it
    grows with them, {pq = 1} may be widened to the convex {pq ≥ 1}. λ_max is the largest of
    tr(ρ ·) over density matrices ρ, a compact convex set, and tr(ρ ·) is linear in both: by Sion's
    theorem min and max may be exchanged."""
    gaps = [flattest(network, x).gap for network, x in networks("S86", 60, n=10, width=20)]
    yield at_most(max(gaps), 1e-6, 0.0, "largest relative duality gap, 60 networks, any spread")
    yield from families(lambda network, x: float(flattest(network, x).gap))


@claim(
    "mulayoff2021/S86-one-vector",
    "The top eigenvector alone certifies the optimum for every network, as the paper found in all "
    "of its simulations.",
    source="Ours, beyond XI, text before (S87)",
    evidence="certificate",
    expected="fails",
)
def s86_one_vector() -> Verdict:
    rng = generator(0, "mulayoff2021/one-vector")
    gaps = []
    for _ in range(10):
        network, x = random_network(rng, 20, 5.0), np.linspace(-5, 5, 10)
        best = UnivariateNetwork.of(flattest(network, x).params)
        features = tangent_features(best, x)
        u = np.linalg.eigh(features.T @ features)[1][:, -1]
        gaps.append(gram_top_eigenvalue(features) / _s88(best, x, u) - 1)
    note = "a multiple top eigenvalue at the optimum needs a density matrix of rank two or more"
    return at_most(max(gaps), 1e-6, 0.0, note)


def _s87(network: UnivariateNetwork, x: np.ndarray, q: np.ndarray, beta: np.ndarray) -> float:
    """The right side of (S87), with q the first n entries of the vector given."""
    q, h = q[: x.size], network.preactivations(x)
    inner = (network.w2 / beta) ** 2 * (((q * x) @ (h > 0)) ** 2 + (q @ (h > 0)) ** 2)
    outer = beta**2 * (q @ np.maximum(h, 0)) ** 2
    return float((inner + outer).sum() + q.sum() ** 2) / x.size


def _s88(network: UnivariateNetwork, x: np.ndarray, q: np.ndarray, factor: float = 2.0) -> float:
    h = network.preactivations(x)
    inner = np.hypot((q * x) @ (h > 0), q @ (h > 0)) * np.abs(q @ np.maximum(h, 0))
    return float(factor * np.abs(network.w2) @ inner + q.sum() ** 2) / x.size


@claim(
    "mulayoff2021/S87-as-printed",
    "qᵀ∇²L q for q ∈ S^{3k} is the sum of squares of (S87) in q_1, …, q_n.",
    source="(S83)–(S87)",
    evidence="identity",
    reading="as printed",
)
def s87_printed() -> Verdict:
    network, x = next(networks("S87", 1))
    q = generator(1, "mulayoff2021/S87").normal(size=network.theta.size)
    q /= np.linalg.norm(q)
    left = np.linalg.norm(q @ tangent_features(network, x)) ** 2 / x.size
    return equal(left, _s87(network, x, q, np.ones(network.width)), 1e-9)


@claim(
    "mulayoff2021/S87-corrected",
    "‖Φ(β)u‖²/n for u ∈ S^{n−1} is the sum of squares of (S87) in u.",
    source="(S83)–(S87)",
    evidence="identity",
    reading="as corrected",
)
def s87_corrected(scale=1.0) -> Verdict:
    network, x = next(networks("S87", 1))
    rng = generator(1, "mulayoff2021/S87")
    u, s = rng.normal(size=x.size), rng.normal(size=network.width)
    pencil = orbit_pencil(architecture(network), network.params, own_data(network, x), ft.HalfMSE())
    return equal(u @ pencil.matrix(s) @ u, scale * _s87(network, x, u, np.exp(s / 2)), 1e-9)


@universal(
    "mulayoff2021/S88",
    "The minimum over β of ‖Φ(β)u‖²/n is "
    "(2/n) Σ |w2_i| √((Σ u x I)² + (Σ u I)²) |Σ u σ| + (Σ u)²/n.",
    source="(S88)",
    refuted_by="inputs, a network, u and β with a smaller ‖Φ(β)u‖²/n",
    least=1.0,
    evidence="proof",
    evaluations=900,
)
def s88(factor=2.0) -> Plan:
    """Proof: each β_i has a term a_i/β_i² + b_i β_i² of its own in (S87), at least 2√(a_i b_i), and
    as much at its best β_i."""
    network, x = next(networks("S88", 1))
    u = generator(1, "mulayoff2021/S88").normal(size=x.size)
    beta = np.ones(network.width)
    for i in range(network.width):

        def along(log_beta, i=i):
            trial = beta.copy()
            trial[i] = np.exp(log_beta)
            return _s87(network, x, u, trial)

        beta[i] = np.exp(minimize_scalar(along, bounds=(-20, 20), method="bounded").x)
    found, least = _s87(network, x, u, beta), _s88(network, x, u, factor)
    yield equal(found, least, 1e-6, "a search over one β_i after another")
    for n, width in ((2, 2), (4, 5)):

        def ratio(z: np.ndarray, n: int = n, width: int = width) -> float:
            """z = (x, w1, b1, w2), u and log β."""
            network, x = decoded(z[: n + 3 * width], n)
            u, log_beta = z[n + 3 * width : -width], np.clip(z[-width:], -20, 20)
            least = _s88(network, x, u, factor)
            return _s87(network, x, u, np.exp(log_beta)) / least if least > 1e-6 else np.nan

        yield Family(f"n = {n}, k = {width}, any u and β", 2 * n + 4 * width, ratio)


@claim(
    "mulayoff2021/S90",
    "The orbit's minimum can exceed the minimum over all implementations of the same function.",
    source="(S90)",
    evidence="certificate",
)
def s90() -> Verdict:
    """hσ(x − τ) on all of R, with two more neurons: silent ones, or ±cσ(x), which cancel.

    The dual value of the second orbit exceeds a value of the first.
    """
    x, tau, h, c = np.linspace(-1, 1, 6), -0.7, 1.0, 4.0
    w1, b1 = np.ones(3), np.array([-tau, 0.0, 0.0])
    silent, cancelling = (
        UnivariateNetwork(w1, b1, np.array([h, weight, -weight]), 0.0) for weight in (0.0, c)
    )
    everywhere = np.concatenate([-np.geomspace(1e-3, 1e6, 200), np.geomspace(1e-3, 1e6, 200)])
    lower, upper = flattest(cancelling, x).dual, flattest(silent, x).value
    note = "dual value of one orbit over a value of another"
    difference = np.abs(cancelling(everywhere) - silent(everywhere)).max() / 1e6
    same = equal(difference, 0.0, 1e-12, "largest |f − f'| on |x| ≤ 10⁶, over 10⁶")
    return provided(at_least(lower / upper, 1.5, 0.0, note), same)
