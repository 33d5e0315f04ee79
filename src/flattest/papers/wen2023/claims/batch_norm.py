"""Section 3 and Appendix A.1: networks with simplified BatchNorm under Condition 1."""

from typing import NamedTuple

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.flatness.certification import differentiable, population_error
from flattest.ledger.claim import Verdicts, assuming, claim, every, misprint, provided, worst
from flattest.papers.wen2023.claims.bias import fits
from flattest.papers.wen2023.claims.instances import (
    dense_trace,
    max_error,
    random_interpolator,
    small_data,
)
from flattest.problem.distributions import hypercube
from flattest.problem.models import Params
from flattest.problem.randomness import generator

SCALE = 1e6
COMPLETE = ft.CompleteXor(6).draw(24, seed=0)


def sim_bn(width: int) -> ft.MLP:
    return ft.MLP(width, bias=True, norm="sim_bn")


def product_norm(params: Params) -> float:
    """‖γ ⊙ W2‖₁."""
    return float(np.abs(params["gamma"] * params["W2"]).sum())


def output_error(model: ft.MLP, params: Params, data: ft.Dataset) -> float:
    """max |x[1]x[2] − f(x)| over all of {−1, 1}^d."""
    x = hypercube(data.d)
    return float(np.abs(x[:, 0] * x[:, 1] - ft.predict(model, params, x, data.x)).max())


def tails(params: Params) -> np.ndarray:
    """‖W1_j[3:d]‖/‖W1_j‖ for each neuron."""
    W1 = params["W1"]
    return np.linalg.norm(W1[:, 2:], axis=1) / np.linalg.norm(W1, axis=1)


def weighted_tail(params: Params) -> float:
    """Σ_j |γ_j W2_j| ‖W1_j[3:d]‖/‖W1_j‖."""
    return float(np.abs(params["gamma"] * params["W2"]) @ tails(params))


def tail_covariance(data: ft.Dataset) -> np.ndarray:
    """Cov x[3:d] over the training set; its least eigenvalue λ is > 0 by Condition 1."""
    return np.cov(data.x[:, 2:].T, bias=True)


def squares(params: Params) -> float:
    """‖γ‖² + ‖W2‖²."""
    return float(sum((params[name] ** 2).sum() for name in ("gamma", "W2")))


@claim(
    "wen2023/condition-1",
    "Complete training sets have n = 4|S| points, all four heads with each tail of S, where S − S "
    "spans rank d − 2; leaving out one point or one coordinate's variation breaks the condition.",
    source="Condition 1",
    evidence="enumeration",
)
def condition_1() -> Verdict:
    wrong = 0
    for d, n in ((5, 16), (8, 40), (12, 60)):
        data = ft.CompleteXor(d).draw(n, seed=d)
        S = np.unique(data.x[:, 2:], axis=0)
        differences = (S[:, None] - S[None]).reshape(-1, d - 2)
        wrong += not ft.meets_condition_1(data)
        wrong += 4 * len(S) != n or np.linalg.matrix_rank(differences) != d - 2
        wrong += ft.meets_condition_1(ft.Dataset(data.x[1:], data.y[1:]))
        frozen = data.x.copy()
        frozen[:, -1] = 1
        wrong += ft.meets_condition_1(ft.Dataset(frozen, data.y))
    return equal(wrong, 0, 0.0, "training sets misjudged")


@claim(
    "wen2023/lemma-a.1",
    "Under Condition 1 every interpolating 2-MLP-Sim-BN has ‖γ ⊙ W2‖₁ ≥ 2, and the four-neuron "
    "network attains it.",
    source="Lemma A.1",
    evidence="inequality",
)
def lemma_a1(two=2.0) -> Verdict:
    _, params, _ = ft.sim_bn_optimum(COMPLETE)
    others = [random_interpolator(sim_bn(40), COMPLETE, seed) for seed in range(100)]
    return equal(
        min(map(product_norm, [params, *others])),
        two,
        1e-9,
        "least ‖γ ⊙ W2‖₁ of 100 random interpolators and the optimum",
    )


def _printed_optimum(sign: bool) -> tuple[ft.MLP, Params, ft.Dataset]:
    """The weights of Lemma A.1's proof: W2 = ½ as printed, or (−1)^{i+j}/2; γ = 1."""
    model, params, _ = ft.sim_bn_optimum(COMPLETE, scale=1.0)
    W2 = np.sign(params["W2"]) / 2 if sign else np.full(4, 0.5)
    return model, {**params, "W2": W2, "gamma": np.ones(4)}, COMPLETE


@claim(
    "wen2023/lemma-a.1/sign-as-printed",
    "With W2 = ½ and γ = 1 the four-neuron network interpolates.",
    source="Lemma A.1, proof",
    evidence="identity",
    reading="as printed",
)
def sign_as_printed() -> Verdict:
    return fits(*_printed_optimum(sign=False))


@claim(
    "wen2023/lemma-a.1/sign-corrected",
    "With W2 = (−1)^{i+j}/2 and γ = 1 the four-neuron network interpolates and ‖γ ⊙ W2‖₁ = 2.",
    source="Lemma A.1, proof",
    evidence="certificate",
    reading="as corrected",
)
def sign_corrected(two=2.0) -> Verdict:
    case = _printed_optimum(sign=True)
    return provided(equal(product_norm(case[1]), two, 1e-12, "‖γ ⊙ W2‖₁"), fits(*case))


@misprint(
    "wen2023/lemma-a.1/sum-",
    printed="a_{4k+1} + a_{4k+4} = 2b_1 = a_{4k+2} + a_{4k+3} for the four heads with one tail.",
    corrected="a_{4k+1} + a_{4k+4} = 2(b_1 + W_1[3:d]s) = a_{4k+2} + a_{4k+3} for four heads with "
    "tail s.",
    source="Lemma A.1, proof",
    evidence="identity",
    of=worst,
)
def sum_of_preactivations(as_printed: bool, two=2.0) -> Verdicts:
    """a_{4k+1} + a_{4k+4} for a random neuron: the heads cancel, the tail does not."""
    rng = generator(0, "claims/lemma-a.1")
    w, b, tail = rng.normal(size=6), rng.normal(), 1.0 - 2.0 * rng.integers(0, 2, 4)
    x = [np.concatenate([head, tail]) for head in ([1, 1], [-1, -1], [1, -1], [-1, 1])]
    a = [w @ point + b for point in x]
    right = two * (b + (0.0 if as_printed else w[2:] @ tail))
    yield from (equal(a[i] + a[i + 1], right, 1e-12) for i in (0, 2))


def with_idle_neurons(coefficient: float) -> tuple[ft.MLP, Params, ft.Dataset]:
    """The optimum with two more neurons along x[3], of opposite W2, |γ| = |W2| = √coefficient.

    Their outputs cancel, so the network still interpolates; the trace rises by 8 · coefficient.
    """
    _, params, _ = ft.sim_bn_optimum(COMPLETE, scale=SCALE)
    idle, root = np.eye(6)[[2, 2]] * SCALE, np.sqrt(coefficient)
    grown = {
        "W1": np.vstack([params["W1"], idle]),
        "b1": np.concatenate([params["b1"], np.full(2, 2 * SCALE)]),
        "gamma": np.concatenate([params["gamma"], [root, root]]),
        "W2": np.concatenate([params["W2"], [root, -root]]),
    }
    return sim_bn(6), grown, COMPLETE


def with_split_neurons(delta: float) -> tuple[ft.MLP, Params, ft.Dataset]:
    """The optimum with each neuron split in two, of weights ±δv on the tail, v the unit vector
    along which the tails vary least.

    On their own head the two are 1 ± δ v·x[3:d], whose sum is that of the neuron; elsewhere they
    are silent. The trace rises by 4δ²λ, λ = Var v·x[3:d], and ‖W1_j[3:d]‖/‖W1_j‖ = √2δ, to leading
    order.
    """
    v = np.linalg.eigh(tail_covariance(COMPLETE))[1][:, 0]
    heads = np.repeat(hypercube(2), 2, axis=0)
    slope = 0.5 + delta * np.abs(v).sum()
    W1 = np.hstack([slope * heads, delta * np.outer(np.tile([1.0, -1.0], 4), v)])
    b1 = np.full(8, 1 - 2 * slope)
    size = np.sqrt((np.maximum(COMPLETE.x @ W1.T + b1, 0) ** 2).mean(axis=0))
    root = np.sqrt(size / 2)
    split = {"W1": SCALE * W1, "b1": SCALE * b1, "gamma": root, "W2": heads.prod(axis=1) * root}
    return sim_bn(8), split, COMPLETE


@misprint(
    "wen2023/lemma-a.1/all-neurons-",
    printed="A minimizer of ‖γ ⊙ W2‖₁ has W1_j[3:d] = 0 for all neurons j.",
    corrected="A minimizer of ‖γ ⊙ W2‖₁ has W1_j[3:d] = 0 for all neurons with γ_j W2_j ≠ 0.",
    source="Lemma A.1",
    evidence="certificate",
)
def all_neurons(as_printed: bool) -> Verdict:
    model, params, data = with_idle_neurons(0.0)
    optimal = equal(product_norm(params), 2.0, 1e-9, "‖γ ⊙ W2‖₁"), fits(model, params, data)
    if as_printed:
        note = "largest ‖W1_j[3:d]‖/‖W1_j‖ at a minimizer with two neurons of γ_j W2_j = 0"
        return assuming(at_most(tails(params).max(), 0.0, 0.0, note), *optimal)
    used = tails(params)[params["gamma"] * params["W2"] != 0]
    return provided(
        equal(used.max(), 0.0, 1e-12, "largest ‖W1_j[3:d]‖/‖W1_j‖ where used"), *optimal
    )


@misprint(
    "wen2023/lemma-a.3/",
    printed="inf Tr ∇²L = inf(‖W2‖² + ‖γ‖²) over interpolating 2-MLP-Sim-BN.",
    corrected="Tr ∇²L ≥ 2(‖W2‖² + ‖γ‖²) for interpolating 2-MLP-Sim-BN, approached as W1 → ∞.",
    source="Lemma A.3",
    evidence="inequality",
)
def lemma_a3(as_printed: bool, two=2.0) -> Verdict:
    """Tr ∇²L/(‖W2‖² + ‖γ‖²) of interpolators, by finite differences at small sizes."""
    data, ratios = small_data(), []
    for seed in range(8):
        params = random_interpolator(sim_bn(9), data, seed)
        live = (np.maximum(data.x @ params["W1"].T + params["b1"], 0) > 0).any(axis=0)
        squares = (params["W2"][live] ** 2).sum() + (params["gamma"][live] ** 2).sum()
        ratios.append(dense_trace(sim_bn(9), params, data) / squares)
    complete = ft.CompleteXor(4).draw(16, seed=0)
    model, params, _ = ft.sim_bn_optimum(complete, scale=1e6)
    squares = (params["W2"] ** 2).sum() + (params["gamma"] ** 2).sum()
    ratios.append(float(ft.trace(model, params, complete)) / squares)
    least = 1.0 if as_printed else two
    return equal(min(ratios), least, 1e-6, "least Tr ∇²L/(‖W2‖² + ‖γ‖²) found")


@misprint(
    "wen2023/lemma-a.3/rectified-",
    printed="∂f/∂W2_j = γ_j a_i[j]/a[j] with a_i = W1 x_i + b_1, whose mean square is γ_j².",
    corrected="∂f/∂W2_j = γ_j relu(a_i[j])/a[j], whose mean square is γ_j².",
    source="Lemma A.3, proof",
    evidence="identity",
)
def normalized_gradient(as_printed: bool) -> Verdict:
    """(1/n) Σ_i (a_i/a)² with a_i the pre-activations as printed, or rectified."""
    data = small_data()
    params = sim_bn(9).init(data.d, seed=3)
    h = data.x @ params["W1"].T + params["b1"]
    r = np.maximum(h, 0)
    live = (r > 0).any(axis=0)
    numerator = h if as_printed else r
    value = (numerator[:, live] ** 2 / (r[:, live] ** 2).mean(axis=0)).mean(axis=0)
    return worst(equal(v, 1.0, 1e-12, "(1/n) Σ_i (a_i[j]/a[j])² for each neuron") for v in value)


def _excess(gamma: np.ndarray, W2: np.ndarray) -> float:
    """(‖γ‖² + ‖W2‖²) / 2‖γ ⊙ W2‖₁ − 1 ≥ 0."""
    return float((gamma @ gamma + W2 @ W2) / (2 * np.abs(gamma * W2).sum()) - 1)


@claim(
    "wen2023/lemma-a.3/equality-as-printed",
    "‖γ‖² + ‖W2‖² = 2‖γ ⊙ W2‖₁ when γ = W2, and the flattest networks have γ = W2.",
    source="Lemmas A.2 and A.3, proofs",
    evidence="identity",
    reading="as printed",
)
def equality_as_printed() -> Verdict:
    model, params, _ = ft.sim_bn_optimum(COMPLETE)
    distance = np.abs(params["gamma"] - params["W2"]).max()
    flat = equal(float(ft.trace(model, params, COMPLETE)), 8.0, 1e-9, "Tr ∇²L")
    return assuming(equal(distance, 0.0, 1e-12, "largest |γ_j − W2_j| where Tr ∇²L = 8"), flat)


@claim(
    "wen2023/lemma-a.3/equality-corrected",
    "‖γ‖² + ‖W2‖² = 2‖γ ⊙ W2‖₁ exactly when |γ| = |W2|.",
    source="Lemmas A.2 and A.3, proofs",
    evidence="identity",
    reading="as corrected",
)
def equality_corrected() -> Verdict:
    rng = generator(0, "claims/balanced")
    balanced, others, least = [], [], 1.05
    for _ in range(100):
        gamma, signs = rng.normal(size=20), rng.choice([-1.0, 1.0], 20)
        off = rng.uniform(least, 1.2, 20) ** rng.choice([-1.0, 1.0], 20)
        balanced.append(_excess(gamma, signs * gamma))
        others.append(_excess(off * gamma, signs * gamma / off))
    note = "largest excess over |γ| = |W2|, 100 pairs with W2 of any signs"
    return provided(
        equal(max(balanced), 0.0, 1e-12, note),
        at_least(
            min(others),
            (least**2 + least**-2) / 2 - 1,
            1e-12,
            "excess where |γ_j/W2_j| is 1.05² off",
        ),
    )


@claim(
    "wen2023/theorem-3.2/infimum",
    "Under Condition 1 the infimum of Tr ∇²L over interpolating 2-MLP-Sim-BN is 8, approached by "
    "the four-neuron network as W1 → ∞.",
    source="Theorem 3.2, with Lemmas A.1 and A.3",
    evidence="certificate",
    of=every,
)
def infimum(eight=8.0) -> Verdicts:
    for d, n in ((6, 24), (12, 60), (30, 160)):
        data = ft.CompleteXor(d).draw(n, seed=0)
        model, params, _ = ft.sim_bn_optimum(data, scale=SCALE)
        yield equal(float(ft.trace(model, params, data)), eight, 1e-9, "W1 of scale 1e6")
        yield equal(ft.lower_bound(model, data).value, eight, 1e-12, "`lower_bound`")
        yield fits(model, params, data)


@claim(
    "wen2023/theorem-3.2/all-neurons-as-printed",
    "A trace close enough to the infimum forces ‖W1_j[3:d]‖ ≤ ε‖W1_j‖ for all neurons j.",
    source="Theorem 3.2",
    evidence="certificate",
    reading="as printed",
)
def theorem_3_2_all_neurons_as_printed() -> Verdict:
    model, params, data = with_idle_neurons(1e-10)
    near = at_most(float(ft.trace(model, params, data)), 8.0, 1e-9, "trace at W1 of scale 1e6")
    note = "largest ratio, 1e-9 above the infimum: two neurons along x[3] that cancel, γW2 = ±1e-10"
    return assuming(at_most(tails(params).max(), 0.1, 0.0, note), near, fits(model, params, data))


class Neurons(NamedTuple):
    """What the proof of `corrected_error` speaks of: w_j = γ_j W2_j, and ‖(W1_j, b1_j)‖/s_j."""

    w: np.ndarray
    steepness: np.ndarray


def neurons(params: Params, data: ft.Dataset) -> Neurons:
    """Of the neurons that some training point activates and that f depends on."""
    r = np.maximum(data.x @ params["W1"].T + params["b1"], 0)
    s, w = np.sqrt((r**2).mean(axis=0)), params["gamma"] * params["W2"]
    used = (s > 0) & (w != 0)
    size = np.linalg.norm(np.column_stack([params["W1"], params["b1"]]), axis=1)
    return Neurons(w[used], size[used] / s[used])


def surplus(params: Params, data: ft.Dataset) -> float:
    """q = ‖γ ⊙ W2‖₁ − 2, which is ≥ 0 for interpolators (Lemma A.1); 0 where rounding says less."""
    return max(float(np.abs(neurons(params, data).w).sum()) - 2, 0.0)


def corrected_error(params: Params, data: ft.Dataset) -> float:
    """Theorem 3.2, corrected: a bound on |x[1]x[2] − f(x)| over all of {−1, 1}^d.

    Under Condition 1 let f interpolate, w_j = γ_j W2_j, q = Σ|w_j| − 2, and s_j ≥ c ‖(W1_j, b1_j)‖
    for all j with w_j ≠ 0 (so s_j > 0, else the neuron is 0). With r = |S|, n = 4r,
        |x[1]x[2] − f(x)| ≤ 4 (3 + Λ√r) √(q(2 + q)/2) + (nq/2) max(2, √(d+1)/c),
    where Λ is the largest, over tails z ∈ {−1, 1}^{d−2}, least norm of coefficients λ with
    z = Σ λ_k s_k, Σ λ_k = 1, which exist since S − S spans. The trace gives q ≤ (Tr ∇²L − 8)/4 and
    Lemma A.2's sum q ≤ (‖γ‖² + ‖W2‖² − 4)/2. So for every c and ε there is a κ, whatever the
    width; without the condition on s_j there is none (`sim_bn_spike`).

    *One neuron.* Let ℓ = (W1_j·x + b1_j)/s_j, u = relu(ℓ), of mean square 1 over the training set,
    e = mean(y u) and g = ½ − |e|. On the four heads with one tail ℓ is α ± β1 ± β2; call the head
    where it is largest h*, whatever the tail. By convexity of relu the sum of y u over the four,
    times y(h*), is ≥ 0, and it is at most u(h*), since relu(ℓ) at −h* is at most that at a
    neighbour. So 4|e| ≤ m := mean of u(h*, s) over s ∈ S. With v = 2·1[x[1:2] = h*],
        mean(u − v)² = 1 − m + 1 ≤ 2 − 4|e| = 4g.                                            (a)
    In particular g ≥ 0, Lemma A.1's |e| ≤ ½.
    If g < 1/n, no u(h*, s_k) is 0, which would cost 4/n in (a): there u = ℓ, which is affine in the
    tail. By (a) the mean over S of (ℓ(h*, ·) − 2)² and, for h ≠ h*, of u(h, ·)² are at most 16g.
    For any tail z then |ℓ(h*, z) − 2| = |Σ λ_k (ℓ(h*, s_k) − 2)| ≤ 4Λ√(rg), and for h ≠ h*, since
    ℓ(h, ·) − ℓ(h*, ·) does not depend on the tail,
        ℓ(h, z) = mean ℓ(h, s_k) + ℓ(h*, z) − mean ℓ(h*, s_k) ≤ 4√g + 4Λ√(rg) + 4√g.
    So |u − v| ≤ 4 (2 + Λ√r) √g on the whole cube.                                           (b)
    If g ≥ 1/n, u ≤ ‖(W1_j, b1_j)‖ √(d+1)/s_j ≤ √(d+1)/c, and |u − v| ≤ max(2, √(d+1)/c).     (c)

    *All neurons.* The mean of y f over the training set is 1 = Σ w_j e_j ≤ Σ |w_j| (½ − g_j), so
    Σ |w_j| g_j ≤ q/2, hence Σ |w_j| √g_j ≤ √(q(2 + q)/2) by Cauchy–Schwarz, and those with
    g_j ≥ 1/n have Σ |w_j| ≤ nq/2.                                                           (d)
    φ = Σ w_j v_j depends on the head alone. On the training set y − φ = Σ w_j (u_j − v_j) has root
    mean square at most Σ |w_j| 2√g_j, and a quarter of (y − φ(h))² is at most its mean square: so
    |y − φ| ≤ 4 √(q(2 + q)/2) at every head. Off the training set |f − φ| ≤ Σ |w_j| |u_j − v_j|,
    which (b), (c) and (d) bound.                                                             ∎

    *Width 4.* For small q each head needs a neuron of its own with |w_j| ≥ ½ − 2√(q(2 + q)/2). Of
    four neurons all are such, g_j ≤ q/(2|w_j|) < 1/n, and (c) is never used: the theorem holds as
    printed. At width 5 it does not (`five_neurons`).
    """
    d, n = data.d, data.n
    S = np.unique(data.x[:, 2:], axis=0)
    extended = np.column_stack([S, np.ones(len(S))])
    cube = np.column_stack([hypercube(d - 2), np.ones(2 ** (d - 2))])
    Lambda = np.linalg.norm(cube @ np.linalg.pinv(extended), axis=1).max()
    q, steepness = surplus(params, data), neurons(params, data).steepness.max()
    useful = 4 * (3 + Lambda * np.sqrt(len(S))) * np.sqrt(q * (2 + q) / 2)
    return float(useful + n * q / 2 * max(2.0, np.sqrt(d + 1) * steepness))


def corrected_tail(params: Params, data: ft.Dataset) -> float:
    """Theorem 3.2, corrected: a bound on Σ_j |w_j| ‖W1_j[3:d]‖/‖W1_j‖, w_j = γ_j W2_j.

    In the notation of `corrected_error`, without any condition on s_j: a neuron with g < 1/n has
    ‖W1[3:d]‖² λ/s² ≤ Var ℓ(h*, ·) ≤ 16g, λ the least eigenvalue of Cov x[3:d]. The mean over S of
    ℓ(h*, ·) is m ≥ 2 − 4g, at the two heads beside h* it is at most 4√g, and the difference is
    2|W1[1]|/s or 2|W1[2]|/s: so ‖W1‖ ≥ √2 s (1 − 2√g − 2g), where the bracket is positive since
    n ≥ 8. Hence ‖W1[3:d]‖/‖W1‖ ≤ √(8g/λ)/(1 − 2√g − 2g). For others it is ≤ 1. With (d), for any
    θ ≤ 1/n between the two kinds,
        Σ |w_j| ‖W1_j[3:d]‖/‖W1_j‖ ≤ 2 √(q(2 + q)/λ)/(1 − 2√θ − 2θ) + q/(2θ).
    As q → 0 with θ = q^{1/3} it is √(2κ/λ)(1 + o(1)), κ = 4q: neurons split in two attain it.
    """
    q, least = surplus(params, data), np.linalg.eigvalsh(tail_covariance(data))[0]
    if q == 0:
        return 0.0
    theta = min(1 / data.n, q ** (1 / 3))
    return float(
        2 * np.sqrt(q * (2 + q) / least) / (1 - 2 * np.sqrt(theta) - 2 * theta) + q / (2 * theta)
    )


def near_flattest(params: Params, data: ft.Dataset, excess: float) -> tuple[Verdict, ...]:
    """That a network is an instance of Theorem 3.2 with κ = `excess`."""
    model = sim_bn(len(params["W2"]))
    error = at_most(max_error(model, params, data), 0.0, 1e-12, "largest |f(x_i) − y_i|")
    smooth = equal(differentiable(model, params, data.x), True, 0.0, "L has a Hessian there")
    trace = float(ft.trace(model, params, data))
    return at_most(trace, 8.0, excess / 8, "trace"), error, smooth


EXCESS = 1e-5
SPIKED = ft.CompleteXor(5).draw(20, seed=0)


def _described(built: ft.Construction, data: ft.Dataset) -> str:
    fit = max_error(built.model, built.params, data)
    return (
        f"trace 8 + {built.certificate.value - 8:.1e}, fit {fit:.0e}, width {built.model.width}, "
        f"d = {data.d}, n = {data.n}"
    )


@claim(
    "wen2023/theorem-3.2/as-printed",
    "Under Condition 1, for every width and ε > 0 there is κ > 0 such that an interpolating "
    "2-MLP-Sim-BN with Tr ∇²L within κ of its infimum has |x[1]x[2] − f(x)| ≤ ε on {−1, 1}^d.",
    source="Theorem 3.2",
    evidence="enumeration",
    reading="as printed",
)
def theorem_3_2_as_printed() -> Verdict:
    built = ft.sim_bn_spike(SPIKED, excess=EXCESS)
    wrong = 2**SPIKED.d * population_error(built.model, built.params, SPIKED).value
    note = (
        f"of {2**SPIKED.d - SPIKED.n} unseen points, wrong in sign: {_described(built, SPIKED)}; "
        "the same at every excess"
    )
    return assuming(at_most(wrong, 0.0, 0.0, note), *near_flattest(built.params, SPIKED, EXCESS))


@claim(
    "wen2023/theorem-3.2/as-printed-d-30",
    "The same at the size of the paper's experiments.",
    source="Theorem 3.2",
    evidence="certificate",
    reading="as printed",
)
def theorem_3_2_at_the_papers_size() -> Verdict:
    data = ft.CompleteXor(30).draw(116, seed=0)
    built = ft.sim_bn_spike(data, excess=EXCESS)
    error = population_error(built.model, built.params, data, 20_000).value
    note = f"zero-one error on 20 000 fresh points: {_described(built, data)}"
    return assuming(at_most(error, 0.0, 0.0, note), *near_flattest(built.params, data, EXCESS))


def five_neurons(excess: float) -> tuple[Params, ft.Dataset]:
    """A near-flattest network of width 5 with an unseen point wrong: |S| = d − 1.

    There the tails are affinely independent, so that the neuron of head h can take neuron B's part
    in the pair of `sim_bn_spike`: it is 1 + δ at s_k and 1 on the other tails, with w = y s, and
    neuron A has w = −yδ/√n. This costs Σ|w_j| − 2 ≤ δ/(2|S|) + δ/√n.
    """
    data = ft.CompleteXor(5).draw(16, seed=0)
    _, six, _ = ft.sim_bn_spike(data, excess=excess, width=6)
    x_k, delta = six["W1"][5] / SCALE, excess * np.sqrt(data.n) / 16
    own = int(np.argmax(six["W1"][:4, :2] @ x_k[:2]))
    S = np.unique(data.x[:, 2:], axis=0)
    at_k = (x_k[2:] == S).all(axis=1).astype(float)
    barycentric = np.linalg.solve(np.column_stack([S, np.ones(len(S))]), at_k)
    W1, b1 = six["W1"][:5].copy(), six["b1"][:5].copy()
    W1[own, 2:] = SCALE * delta * barycentric[:-1]
    b1[own] += SCALE * delta * barycentric[-1]
    w, y = six["gamma"][:5] * six["W2"][:5], x_k[0] * x_k[1]
    s = np.sqrt((np.maximum(data.x @ W1[own] + b1[own], 0) ** 2).mean())
    w[own], w[4] = y * s / SCALE, -y * delta / np.sqrt(data.n)
    root = np.sqrt(np.abs(w))
    return {"W1": W1, "b1": b1, "gamma": root, "W2": np.sign(w) * root}, data


@claim(
    "wen2023/theorem-3.2/width-5-as-printed",
    "The same for networks of width 5, one more than those that attain the infimum.",
    source="Theorem 3.2",
    evidence="certificate",
    reading="as printed",
)
def theorem_3_2_at_width_5() -> Verdict:
    params, data = five_neurons(EXCESS)
    note = "largest |x[1]x[2] − f(x)| on {−1, 1}^5, n = 16"
    off = output_error(sim_bn(5), params, data)
    return assuming(at_most(off, 0.1, 0.0, note), *near_flattest(params, data, EXCESS))


@claim(
    "wen2023/lemma-a.2/as-printed",
    "Under Condition 1 interpolating 2-MLP-Sim-BN with ‖γ‖² + ‖W2‖² near its infimum 4 have "
    "|x[1]x[2] − f(x)| ≤ ε on {−1, 1}^d.",
    source="Lemma A.2",
    evidence="enumeration",
    reading="as printed",
)
def lemma_a2_as_printed() -> Verdict:
    model, params, _ = ft.sim_bn_spike(SPIKED, excess=EXCESS)
    note = "largest |x[1]x[2] − f(x)| on {−1, 1}^5, of a spike network"
    near = at_most(squares(params), 4.0, EXCESS / 8, "‖γ‖² + ‖W2‖²")
    off = output_error(model, params, SPIKED)
    return assuming(at_most(off, 0.1, 0.0, note), near, *near_flattest(params, SPIKED, EXCESS))


@misprint(
    "wen2023/lemma-a.2/tails-",
    printed="Near the infimum of ‖γ‖² + ‖W2‖² all neurons have ‖W1_j[3:d]‖ ≤ ε.",
    corrected="Near the infimum of ‖γ‖² + ‖W2‖² the sum of |γ_j W2_j| ‖W1_j[3:d]‖/‖W1_j‖ is small: "
    "the scale of W1_j is free.",
    source="Lemma A.2",
    evidence="certificate",
)
def lemma_a2_tails(as_printed: bool) -> Verdict:
    """A network with split neurons, all of which count: |γ_j W2_j| ≥ 0.2. See `corrected_tail`."""
    model, params, data = with_split_neurons(1e-4)
    near = at_most(squares(params), 4.0, 1e-7, "‖γ‖² + ‖W2‖²"), fits(model, params, data)
    if as_printed:
        longest = np.linalg.norm(params["W1"][:, 2:], axis=1).max()
        note = "largest ‖W1_j[3:d]‖ of a network with split neurons, ‖γ‖² + ‖W2‖² = 4 + 1e-8"
        return assuming(at_most(longest, 0.1, 0.0, note), *near)
    bound = corrected_tail(params, data)
    note = f"the sum of the same network, against the proven bound {bound:.1e}"
    return provided(at_most(weighted_tail(params), bound, 0.0, note), *near)
