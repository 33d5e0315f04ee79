"""Section 3 and Appendix A.1: networks with simplified BatchNorm under Condition 1."""

from functools import cache

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.ledger.claim import Verdicts, assuming, claim, every, misprint, provided, worst
from flattest.papers.wen2023.claims.bias import fits
from flattest.papers.wen2023.claims.instances import dense_trace, random_interpolator, small_data
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
    """The optimum with each neuron split in two, of weights ±δ on x[3].

    On their own head the two are 1 ± δx[3], whose sum is that of the neuron; elsewhere they are
    silent. The trace rises by 4δ² Var x[3] and the tails by δ, to leading order.
    """
    heads = np.repeat(hypercube(2), 2, axis=0)
    slope = 0.5 + delta
    W1 = np.zeros((8, 6))
    W1[:, :2], W1[:, 2] = slope * heads, np.tile([delta, -delta], 4)
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


@claim(
    "wen2023/theorem-3.2/all-neurons-corrected",
    "A trace close to the infimum forces Σ_j |γ_j W2_j| ‖W1_j[3:d]‖/‖W1_j‖ to be small, as the "
    "root of the excess: neurons that matter see the first two coordinates only.",
    source="Theorem 3.2",
    evidence="inequality",
    reading="as corrected",
)
def theorem_3_2_all_neurons_corrected(two=2.0) -> Verdict:
    cases = [with_idle_neurons(c) for c in (1e-2, 1e-4, 1e-6)]
    cases += [with_split_neurons(delta) for delta in (1e-1, 1e-2, 1e-4)]
    ratios = [
        weighted_tail(params) ** 2 * data.x[:, 2].var() / (float(ft.trace(model, params, data)) - 8)
        for model, params, data in cases
    ]
    note = (
        "largest squared sum times Var x[3] over the excess of the trace over 8; six networks with "
        "weights on x[3], of neurons that cancel and of neurons split in two"
    )
    return every([equal(max(ratios), two, 2e-3, note), *(fits(*case) for case in cases)])


@cache
def searches() -> tuple[tuple[ft.MLP, ft.SearchResult, ft.Dataset], ...]:
    """Searches from interpolators of wrong labels on as many fresh points as training points."""
    found = []
    for seed in range(6):
        data, model = ft.CompleteXor(8).draw(48, seed), sim_bn(40)
        bad = ft.bad_interpolator(model, data, wrong=48, seed=seed)
        found.append((model, ft.search_flattest(model, data, bad, steps=600), data))
    return tuple(found)


def weighted_tail(params: Params) -> float:
    """Σ_j |γ_j W2_j| ‖W1_j[3:d]‖/‖W1_j‖."""
    return float(np.abs(params["gamma"] * params["W2"]) @ tails(params))


@claim(
    "wen2023/theorem-3.2",
    "Under Condition 1 near-flattest 2-MLP-Sim-BN have |x[1]x[2] − f(x)| ≤ ε on {−1, 1}^d.",
    source="Theorem 3.2",
    evidence="sample",
    cost="full",
)
def theorem_3_2() -> Verdict:
    found = searches()
    starts = [result.start.test_error for _, result, _ in found]
    near = [case for case in found if case[1].end.sharpness < 8.01]
    errors = [output_error(model, result.params, data) for model, result, data in near]
    tail = max(weighted_tail(result.params) for _, result, _ in near)
    note = (
        f"{len(near)} of {len(found)} searches from interpolators with test error ≥ "
        f"{min(starts):.2f} end within 0.01 of the infimum 8; largest |x[1]x[2] − f(x)| there"
    )
    return provided(
        at_most(max(errors), 0.1, 0.0, note, seeds=len(near)),
        at_least(len(near), 5, 0.0, "searches that end near the infimum"),
        at_least(min(starts), 0.2, 0.0, "test error at the start"),
        at_most(tail, 0.1, 0.0, "Σ_j |γ_j W2_j| ‖W1_j[3:d]‖/‖W1_j‖ at the end"),
    )


@claim(
    "wen2023/lemma-a.2",
    "Under Condition 1 interpolating 2-MLP-Sim-BN with ‖γ‖² + ‖W2‖² near its infimum 4 compute "
    "x[1]x[2] on {−1, 1}^d.",
    source="Lemma A.2",
    evidence="sample",
    cost="full",
)
def lemma_a2() -> Verdict:
    errors, squares = [], []
    for model, result, data in searches():
        squares.append(sum(float((result.params[name] ** 2).sum()) for name in ("gamma", "W2")))
        if squares[-1] < 4.005:
            errors.append(output_error(model, result.params, data))
    note = "largest |x[1]x[2] − f(x)| where ‖γ‖² + ‖W2‖² < 4.005 at the end of a search"
    return provided(
        at_most(max(errors, default=np.inf), 0.1, 0.0, note, seeds=len(errors)),
        equal(min(squares), 4.0, 1e-3, "least ‖γ‖² + ‖W2‖²"),
        at_least(min(squares), 4.0, 1e-9, "least ‖γ‖² + ‖W2‖²"),
    )
