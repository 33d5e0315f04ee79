"""Section 5 and Appendix A.4: networks with simplified LayerNorm."""

import itertools

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, equal
from flattest.flatness.certification import population_error
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, assuming, claim, every, misprint, provided, worst
from flattest.papers.wen2023.claims.bias import (
    fits,
    memorizer_parts,
    norms,
    sphere_data,
    unpacked,
)
from flattest.papers.wen2023.claims.instances import dense_trace, random_interpolator, with_ones

EPSILONS = (1e-5, 0.1, 2.0, 10.0, 100.0)


def lemma_a12_bound(data: ft.Dataset, epsilon: float, two: float = 2.0) -> float:
    """(2/n) Σ min(1, (2/ε)‖x'_i‖|y_i|), written out anew."""
    return float(2 * np.minimum(1, two / epsilon * norms(data) * np.abs(data.y)).mean())


@universal(
    "wen2023/lemma-a.12",
    "Every interpolating 2-MLP-Sim-LN has Tr ∇²L ≥ (2/n) Σ min(1, (2/ε)√(‖x_i‖²+1)|y_i|), and the "
    "bound is attained.",
    source="Lemma A.12",
    refuted_by="points, ε and a 2-MLP-Sim-LN whose trace at its own outputs is below the bound",
    least=1.0,
    attained=True,
    evaluations=1500,
    evidence="proof",
)
def lemma_a12(factor=1.0, two=2.0) -> Plan:
    """Proof: where ‖r‖ ≥ ε, ‖∂f/∂a‖² = ‖r‖²/‖r‖² = 1. Else f = a·r/ε, and the squares of ∂f/∂a and
    ∂f/∂W1 add up to (‖r‖² + ‖a 1[h > 0]‖²‖x'‖²)/ε² ≥ 2‖r‖‖a 1[h > 0]‖‖x'‖/ε² ≥ (2/ε)|f|‖x'‖. With
    Lemma 4.1 and f = y this is the bound.

    Any network interpolates its own outputs, so data, weights and ε are free. One neuron with
    w = r x'/‖x'‖ and a = r at one point attains the bound where r‖x'‖ < ε."""
    for n, d, width in ((1, 2, 1), (2, 2, 2), (4, 2, 4)):

        def ratio(z: np.ndarray, n: int = n, d: int = d, width: int = width) -> float:
            epsilon, x = np.exp(z[0]), z[1 : 1 + n * d].reshape(n, d)
            W1, a = unpacked(z[1 + n * d :], [(width, d + 1), (width,)])
            trace, y = own_sim_ln_trace(W1, a, with_ones(x), epsilon)
            bound = factor * lemma_a12_bound(ft.Dataset(x, y), epsilon, two)
            return trace / bound if bound > 1e-6 else np.nan

        # ε = 10, x = (1, 2).
        alone = np.array([np.log(10), 1, 2, *np.array([1, 2, 1]) / np.sqrt(6), 1])
        starts = (alone,) if n == 1 else ()
        if n == 1:
            yield equal(ratio(alone), 1.0, 1e-9, "one neuron at one point, ‖r‖ < ε")
        size = 1 + n * d + width * (d + 2)
        yield Family(f"n = {n}, d = {d}, width {width}, any ε", size, ratio, starts)
    data, model = sphere_data(6, 3, seed=0), ft.MLP(20, bias=True, norm="sim_ln", epsilon=2.0)
    params = random_interpolator(model, data, seed=0)
    W1 = np.column_stack([params["W1"], params["b1"]])
    by_hand = own_sim_ln_trace(W1, params["W2"], with_ones(data.x), 2.0)[0]
    yield equal(by_hand, float(ft.trace(model, params, data)), 1e-9, "the trace by hand")


def own_sim_ln_trace(
    W1: np.ndarray, a: np.ndarray, x: np.ndarray, epsilon: float
) -> tuple[float, np.ndarray]:
    """(2/n) Σ‖∇f(x_i)‖² of f = a·r/max(‖r‖, ε), r = σ(W1 x), and its outputs.

    ∂f/∂a = r/N and ∂f/∂r = (a − 1[‖r‖ > ε](a·r) r/‖r‖²)/N with N = max(‖r‖, ε).
    """
    h = x @ W1.T
    r = np.maximum(h, 0)
    squares = (r**2).sum(axis=1, keepdims=True)
    N = np.maximum(np.sqrt(squares), epsilon)
    along = np.where(squares > epsilon**2, (r @ a)[:, None] * r / np.maximum(squares, 1e-300), 0)
    inner = (((a - along) / N * (h > 0)) ** 2).sum(axis=1) * (x**2).sum(axis=1)
    return float(2 * (inner + ((r / N) ** 2).sum(axis=1)).mean()), (r @ a) / N[:, 0]


@claim(
    "wen2023/lemma-a.12/bounds-agree",
    "`lower_bound` is the formula of Lemma A.12.",
    source="Lemma A.12",
    evidence="identity",
)
def bounds_agree(factor=1.0) -> Verdict:
    data = sphere_data(12, 6, seed=1)
    return worst(
        equal(
            ft.lower_bound(ft.MLP(12, bias=True, norm="sim_ln", epsilon=e), data).value,
            factor * lemma_a12_bound(data, e),
            1e-12,
        )
        for e in EPSILONS
    )


def _memorizer_parts(data: ft.Dataset, epsilon: float, bound: float, **constants) -> list[Verdict]:
    built = ft.sim_ln_memorizer(data, epsilon, **constants)
    return memorizer_parts(built, data, bound, f"trace, ε = {epsilon:g}")


@claim(
    "wen2023/theorem-5.1",
    "For extreme inputs a memorizing 2-MLP-Sim-LN of width n has the least trace, for every ε.",
    source="Theorem 5.1",
    evidence="certificate",
)
def theorem_5_1(factor=1.0) -> Verdict:
    sets = (ft.Xor(30, distinct=True).draw(100, 0), sphere_data(60, 20, 2), sphere_data(12, 6, 1))
    return every(
        part
        for data in sets
        for epsilon in EPSILONS
        for part in _memorizer_parts(data, epsilon, factor * lemma_a12_bound(data, epsilon))
    )


@misprint(
    "wen2023/theorem-5.1/cases-",
    printed="Case 1 of the construction begins at √(‖x‖²+1)|y| > ε.",
    corrected="Case 1 of the construction begins at √(‖x‖²+1)|y| > ε/2.",
    source="Theorem 5.1, proof",
    evidence="certificate",
)
def cases(as_printed: bool, factor=1.0) -> Verdict:
    """The proof's (r, u) for data with s = ‖x'‖|y| between ε/2 and ε."""
    epsilon = 1.0
    data = sphere_data(10, 4, seed=0)
    s = np.linspace(0.55, 0.95, data.n)
    data = ft.Dataset(data.x, np.sign(data.y) * s / norms(data))
    large = s > (1.0 if as_printed else 0.5) * epsilon
    r = np.where(large, 1.0, np.sqrt(epsilon / s))
    u = np.where(large, 2 * epsilon, epsilon / r)
    bound = factor * lemma_a12_bound(data, epsilon)
    return (assuming if as_printed else provided)(*_memorizer_parts(data, epsilon, bound, r=r, u=u))


@misprint(
    "wen2023/theorem-5.1/zero-label-",
    printed="Where y_i = 0 the printed choice u_i = 2ε attains the least trace.",
    corrected="Where y_i = 0 a memorizing solution approaches the least trace as u_i → 0, costing "
    "u_i²/ε².",
    source="Theorem 5.1, proof, case 3",
    evidence="certificate",
)
def zero_label(as_printed: bool, factor=1.0) -> Verdict:
    data, epsilon = sphere_data(10, 4, seed=0, zeros=2), 1e-3
    u = np.where(data.y == 0, 2e-3 if as_printed else 1e-10, 2e-3)
    bound = factor * lemma_a12_bound(data, epsilon)
    return (assuming if as_printed else provided)(*_memorizer_parts(data, epsilon, bound, u=u))


@claim(
    "wen2023/footnote-5",
    "At the memorizer ∇_{W1} f(x_i) = 0 where only one activation is not 0 and it exceeds ε: the "
    "trace by finite differences is 2 for xor labels.",
    source="Footnote 5",
    evidence="identity",
)
def footnote_5(two=2.0) -> Verdict:
    data = ft.Xor(4, distinct=True).draw(8, 0)
    model, params, _ = ft.sim_ln_memorizer(data, epsilon=0.5)
    return equal(dense_trace(model, params, data), two, 1e-6, "d = 4, n = 8, ε = 0.5")


@claim(
    "wen2023/proposition-5.1",
    "For n distinct points a flattest memorizing 2-MLP-Sim-LN has trace 2 and zero-one error "
    "max(1 − n/2^d, 0).",
    source="Proposition 5.1",
    evidence="enumeration",
    of=every,
)
def proposition_5_1(factor=1.0, two=2.0) -> Verdicts:
    for d, n in ((12, 500), (5, 20), (5, 32)):
        data = ft.Xor(d, distinct=True).draw(n, seed=d)
        model, params, _ = ft.sim_ln_memorizer(data)
        error = population_error(model, params, data).value
        yield equal(error, factor * max(1 - n / 2**d, 0), 1e-12, "all of {−1, 1}^d, d ≤ 12")
        yield from _memorizer_parts(data, 1e-5, two)


@misprint(
    "wen2023/equation-18/index-",
    printed="W1_{2i+j} = 2ε[(−1)^i, (−1)^j, 0, …] for i, j ∈ [2], and W1_k = 0 for all k > 4.",
    corrected="W1_{2i+j+1} = 2ε[(−1)^i, (−1)^j, 0, …] for i, j ∈ {0, 1}, and W1_k = 0 for all "
    "k > 4.",
    source="Equation (18)",
    evidence="identity",
)
def equation_18(as_printed: bool) -> Verdict:
    """The interpolation error of (18); its first line, then its second, with 1-based indices.

    i, j ∈ {1, 2} name the neurons 3, 4, 5 and 6, of which k > 4 erases two.
    """
    epsilon, width = 0.5, 6
    data = ft.Xor(6).draw(40, 0)
    params = {"W1": np.zeros((width, 6)), "b1": np.zeros(width), "W2": np.zeros(width)}
    first, shift = (1, 0) if as_printed else (0, 1)
    for i, j in itertools.product((first, first + 1), repeat=2):
        neuron = 2 * i + j + shift - 1
        params["W1"][neuron, :2] = 2 * epsilon * np.array([(-1) ** i, (-1) ** j])
        params["b1"][neuron], params["W2"][neuron] = -2 * epsilon, (-1) ** (i + j)
    for value in params.values():
        value[4:] = 0
    model = ft.MLP(width, bias=True, norm="sim_ln", epsilon=epsilon)
    return fits(model, params, data)


@claim(
    "wen2023/proposition-5.2",
    "A flattest 2-MLP-Sim-LN with four active neurons has trace 2 and zero-one error 0.",
    source="Proposition 5.2",
    evidence="certificate",
    of=every,
)
def proposition_5_2(two=2.0) -> Verdicts:
    for d, n in ((30, 100), (12, 1000), (5, 4)):
        data = ft.Xor(d).draw(n, 0)
        model, params, _ = ft.sim_ln_generalizer(data)
        yield equal(float(ft.trace(model, params, data)), two, 1e-9, "d = 5 … 30")
        yield fits(model, params, data)
        yield equal(population_error(model, params, data).value, 0.0, 0.0, "zero-one error")
