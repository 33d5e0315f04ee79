"""Section 3 and Appendix A.1: networks with simplified BatchNorm under Condition 1."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, at_least, at_most, equal
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, assuming, claim, every, misprint, provided, worst
from flattest.papers.wen2023.claims.bias import fits
from flattest.papers.wen2023.claims.instances import dense_trace, random_interpolator, small_data
from flattest.problem.models import Params
from flattest.problem.randomness import generator

SCALE = 1e6
COMPLETE = ft.CompleteXor(6).draw(24, seed=0)
SMALL = ft.CompleteXor(4).draw(12, seed=0)
CUBE = ft.CompleteXor(3).draw(8, seed=0)


def sim_bn(width: int) -> ft.MLP:
    return ft.MLP(width, bias=True, norm="sim_bn")


def product_norm(params: Params) -> float:
    """‖γ ⊙ W2‖₁."""
    return float(np.abs(params["gamma"] * params["W2"]).sum())


def tails(params: Params) -> np.ndarray:
    """‖W1_j[3:d]‖/‖W1_j‖ for each neuron."""
    W1 = params["W1"]
    return np.linalg.norm(W1[:, 2:], axis=1) / np.linalg.norm(W1, axis=1)


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


def normalized(W1: np.ndarray, b1: np.ndarray, data: ft.Dataset) -> np.ndarray:
    """u_j(x_i) = r_j(x_i)/s_j; 0 for neurons that no training point activates."""
    r = np.maximum(data.x @ W1.T + b1, 0)
    s = np.sqrt((r**2).mean(axis=0))
    return r / np.where(s > 0, s, 1.0)


def balanced(W1: np.ndarray, b1: np.ndarray, w: np.ndarray) -> Params:
    """The parameters with γ ⊙ W2 = w and |γ| = |W2|."""
    root = np.sqrt(np.abs(w))
    return {"W1": W1, "b1": b1, "gamma": root, "W2": np.sign(w) * root}


def encoded(params: Params, width: int) -> np.ndarray:
    """Rows (W1_j, b1_j, γ_j W2_j), after which random neurons with γ_j W2_j = 0, as a vector."""
    own = np.column_stack([params["W1"], params["b1"], params["gamma"] * params["W2"]])
    rows = generator(width, "claims/further neurons").normal(size=(width, own.shape[1]))
    rows[:, -1] = 0.0
    rows[: len(own)] = own
    return rows.ravel()


def decoded(z: np.ndarray, data: ft.Dataset) -> Params | None:
    """The network of such a vector with γ ⊙ W2 changed by the least that makes it interpolate."""
    rows = z.reshape(-1, data.d + 2)
    W1, b1 = rows[:, :-2], rows[:, -2]
    u = normalized(W1, b1, data)
    w = np.where(u.any(axis=0), rows[:, -1], 0.0)
    w = w + np.linalg.lstsq(u, data.y - u @ w, rcond=1e-12)[0]
    return balanced(W1, b1, w) if np.abs(u @ w - data.y).max() < 1e-11 else None


def networks(
    measure: Callable[[Params, ft.Dataset], float],
    starts: Callable[[ft.Dataset], Iterator[Params]] = lambda data: iter(()),
    sets: Sequence[ft.Dataset] = (CUBE, SMALL),
) -> Iterator[Family]:
    """Interpolating networks on complete data, the optimum among the starts."""
    for data in sets:
        width = data.n + 1

        def value(z: np.ndarray, data: ft.Dataset = data) -> float:
            params = decoded(z, data)
            return np.nan if params is None else measure(params, data)

        begin = [ft.sim_bn_optimum(data, scale=1.0).params, *starts(data)]
        yield Family(
            f"d = {data.d}, n = {data.n}, width {width}",
            width * (data.d + 2),
            value,
            tuple(encoded(params, width) for params in begin),
        )


@universal(
    "wen2023/lemma-a.1",
    "Under Condition 1 every interpolating 2-MLP-Sim-BN has ‖γ ⊙ W2‖₁ ≥ 2, and the four-neuron "
    "network attains it.",
    source="Lemma A.1",
    refuted_by="an interpolating network with ‖γ ⊙ W2‖₁ < 2",
    evidence="proof",
    least=1.0,
    attained=True,
    evaluations=400,
)
def lemma_a1(two=2.0) -> Plan:
    """‖γ ⊙ W2‖₁/2.

    Proof: 1 = mean(y f) = Σ γ_j W2_j e_j with e_j = mean(y u_j), and |e_j| ≤ ½ by (a) in
    `near_flattest.corrected_error`.
    """
    yield from networks(lambda params, _: product_norm(params) / two)


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


@claim(
    "wen2023/lemma-a.1/all-neurons-as-printed",
    "A minimizer of ‖γ ⊙ W2‖₁ has W1_j[3:d] = 0 for all neurons j.",
    source="Lemma A.1",
    evidence="certificate",
    reading="as printed",
)
def all_neurons_as_printed() -> Verdict:
    """The optimum with two neurons of γ_j W2_j = 0 whose W1_j is free."""
    model, params, data = with_idle_neurons(0.0)
    note = "largest ‖W1_j[3:d]‖/‖W1_j‖ at a minimizer with two neurons of γ_j W2_j = 0"
    return assuming(
        at_most(tails(params).max(), 0.0, 0.0, note),
        equal(product_norm(params), 2.0, 1e-9, "‖γ ⊙ W2‖₁"),
        fits(model, params, data),
    )


def trace_share(params: Params, data: ft.Dataset) -> float:
    """Tr ∇²L/(‖W2‖² + ‖γ‖²) over the neurons that some training point activates."""
    live = np.any(normalized(params["W1"], params["b1"], data), axis=0)
    live_squares = squares({name: params[name][live] for name in ("gamma", "W2")})
    return float(ft.trace(sim_bn(len(params["W2"])), params, data)) / live_squares


def _at_scale(data: ft.Dataset) -> Iterator[Params]:
    yield ft.sim_bn_optimum(data, scale=SCALE).params


@claim(
    "wen2023/lemma-a.3/as-printed",
    "inf Tr ∇²L = inf(‖W2‖² + ‖γ‖²) over interpolating 2-MLP-Sim-BN.",
    source="Lemma A.3",
    evidence="identity",
    reading="as printed",
)
def lemma_a3_as_printed() -> Verdict:
    ratio = trace_share(next(_at_scale(SMALL)), SMALL)
    return equal(ratio, 1.0, 1e-6, "Tr ∇²L/(‖W2‖² + ‖γ‖²) of the optimum at scale 1e6")


@universal(
    "wen2023/lemma-a.3/corrected",
    "Tr ∇²L ≥ 2(‖W2‖² + ‖γ‖²) for interpolating 2-MLP-Sim-BN, over the neurons that a training "
    "point activates (others cost nothing); approached as W1 → ∞.",
    source="Lemma A.3",
    reading="as corrected",
    refuted_by="an interpolating network with a smaller trace",
    evidence="proof",
    least=1.0,
    attained=True,
    evaluations=200,
)
def lemma_a3_corrected(two=2.0) -> Plan:
    """Tr ∇²L/2(‖W2‖² + ‖γ‖²). Proof: the gradients in W2_j and γ_j have the mean squares γ_j² and
    W2_j² where s_j > 0, and what W1 and b1 add is a sum of squares. By finite differences at one
    network, and a neuron that no training point activates at another."""
    data, model = small_data(), sim_bn(9)
    params = random_interpolator(model, data, 0)
    closed = float(ft.trace(model, params, data))
    yield equal(dense_trace(model, params, data), closed, 1e-6, "Tr ∇²L by finite differences")
    model, params, _ = ft.sim_bn_optimum(SMALL)
    dead = {"W1": np.zeros(SMALL.d), "b1": -1.0, "gamma": 10.0, "W2": 10.0}
    grown = {name: np.append(value, [dead[name]], axis=0) for name, value in params.items()}
    unchanged = float(ft.trace(sim_bn(5), grown, SMALL)), float(ft.trace(model, params, SMALL))
    yield equal(*unchanged, 1e-12, "Tr ∇²L with a neuron more that no training point activates")
    yield from networks(lambda params, data: trace_share(params, data) / two, _at_scale)


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
