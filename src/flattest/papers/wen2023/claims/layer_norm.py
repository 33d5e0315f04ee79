"""Section 5 and Appendix A.4: networks with simplified LayerNorm."""

import itertools

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, equal
from flattest.flatness.certification import population_error
from flattest.ledger.claim import Verdicts, assuming, claim, every, misprint, provided, worst
from flattest.papers.wen2023.claims.bias import fits, memorizer_parts, norms, sphere_data
from flattest.papers.wen2023.claims.instances import dense_trace, random_interpolator

EPSILONS = (1e-5, 0.1, 2.0, 10.0, 100.0)


def lemma_a12_bound(data: ft.Dataset, epsilon: float, two: float = 2.0) -> float:
    """(2/n) Σ min(1, (2/ε)‖x'_i‖|y_i|), written out anew."""
    return float(2 * np.minimum(1, two / epsilon * norms(data) * np.abs(data.y)).mean())


@claim(
    "wen2023/lemma-a.12",
    "Every interpolating 2-MLP-Sim-LN has Tr ∇²L ≥ (2/n) Σ min(1, (2/ε)√(‖x_i‖²+1)|y_i|), and the "
    "bound is attained.",
    source="Lemma A.12",
    evidence="inequality",
    of=worst,
)
def lemma_a12(factor=1.0, two=2.0) -> Verdicts:
    data = sphere_data(12, 6, seed=1)
    note = "least trace/bound for five ε: 150 random interpolators and 5 memorizers"
    for epsilon in EPSILONS:
        bound = factor * lemma_a12_bound(data, epsilon, two)
        wide = ft.MLP(20, bias=True, norm="sim_ln", epsilon=epsilon)
        networks = [(wide, random_interpolator(wide, data, seed)) for seed in range(30)]
        networks.append(ft.sim_ln_memorizer(data, epsilon)[:2])
        least = min(float(ft.trace(model, params, data)) for model, params in networks)
        yield equal(least / bound, 1.0, 1e-9, note)


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
