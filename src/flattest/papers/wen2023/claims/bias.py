"""Section 4 and Appendix A.3: networks with a bias in the first layer."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.spatial import ConvexHull, QhullError

import flattest as ft
from flattest.evidence import Verdict, at_most, equal
from flattest.flatness.certification import hidden_layers, population_error
from flattest.flatness.extreme import LEAST_MARGIN, is_extreme, widest_separation
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import Verdicts, assuming, claim, every, misprint, provided, worst
from flattest.papers.wen2023.claims.instances import (
    dense_trace,
    max_error,
    output_traces,
    own_trace,
    random_interpolator,
    small_data,
    small_interpolators,
    squared_gradients,
    with_ones,
)
from flattest.problem.randomness import generator

FLAT, FITS = 1e-9, 1e-10


def norms(data: ft.Dataset) -> np.ndarray:
    """‖x'_i‖, x' = (x, 1)."""
    return np.sqrt((data.x**2).sum(axis=1) + 1)


def theorem_4_1_bound(data: ft.Dataset, depth: int) -> float:
    """(2D/n) Σ |y_i|^{2(D−1)/D} ‖x'_i‖^{2/D}, written out anew."""
    D = depth
    return float(np.mean(2 * D * np.abs(data.y) ** (2 * (D - 1) / D) * norms(data) ** (2 / D)))


def sphere_data(n: int, d: int, seed: int, zeros: int = 0) -> ft.Dataset:
    """Points on a sphere, which are extreme, with normal labels, some of them 0."""
    rng = generator(seed, "claims/sphere data")
    x = rng.normal(size=(n, d))
    y = rng.normal(size=n)
    y[:zeros] = 0
    return ft.Dataset(3 * x / np.linalg.norm(x, axis=1, keepdims=True), y)


def fits(model, params, data) -> Verdict:
    return equal(max_error(model, params, data), 0.0, FITS, "interpolation error")


@claim(
    "wen2023/lemma-4.1",
    "At a differentiable interpolator Tr ∇²L = (2/n) Σ‖∇f(x_i)‖².",
    source="Lemma 4.1",
    evidence="identity",
)
def lemma_4_1(factor=2.0) -> Verdict:
    note = "six architectures, second differences of L against first differences of f"
    return worst(
        equal(dense_trace(*case), factor * squared_gradients(*case).mean(), 1e-6, note)
        for case in small_interpolators()
    )


@claim(
    "wen2023/equation-1",
    "Away from interpolation (2/n) Σ(f(x_i) − y_i) Tr ∇²f(x_i) is added, which is 0 for ReLU "
    "networks without normalization.",
    source="Equation (1), second line",
    evidence="identity",
    of=worst,
)
def equation_1(factor=2.0) -> Verdicts:
    data = small_data()
    for model, _, _ in small_interpolators():
        params = model.init(data.d, seed=5)
        residual = ft.predict(model, params, data.x, data.x) - data.y
        extra = output_traces(model, params, data)
        value = dense_trace(model, params, data)
        terms = squared_gradients(model, params, data) + residual * extra
        yield equal(value, factor * terms.mean(), 1e-6, "six architectures at random")
        if model.norm is None and model.sigma.is_relu:
            yield equal(np.abs(extra).max(), 0.0, 1e-6, "Tr ∇²f of a ReLU network")


@universal(
    "wen2023/definition-4.1",
    "A set of extreme points is one whose every point is a vertex of its convex hull; the linear "
    "program for w_i·x_i > w_i·x_j decides it.",
    source="Definition 4.1",
    refuted_by="points that the program and the facets of the others' hull judge differently",
    largest=0.0,
    evidence="proof",
    evaluations=80,
)
def definition_4_1() -> Plan:
    """Proof: x_i is a vertex of the hull exactly if it is not in the hull of the others, which is
    compact and convex: exactly if a hyperplane has x_i strictly on one side of it and the others on
    the other (Minkowski). The attack brings a point as near to the others' hull as it can."""
    misjudged = 0
    for seed in range(20):
        x = generator(seed, "claims/definition-4.1").normal(size=(14, 2 + seed % 3))
        vertices = np.isin(np.arange(len(x)), ConvexHull(x).vertices)
        misjudged += int((is_extreme(x) != vertices).sum())
    misjudged += int((~is_extreme(ft.Xor(6, distinct=True).draw(40, 0).x)).sum())
    yield equal(misjudged, 0, 0.0, "points misjudged, against Qhull in 2–4 dimensions, and a cube")
    for n, d in ((4, 2), (5, 3)):
        yield Family(f"{n} points in R^{d}", n * d, partial(_misjudged, n))


def _misjudged(n: int, z: np.ndarray) -> float:
    """1 where the program and Qhull disagree on whether the first point is outside of the hull of
    the others, else minus the distance to the nearest plane of a facet; NaN within rounding."""
    x = z.reshape(n, -1)
    size = np.abs(x - x.mean(axis=0)).max()
    try:
        facets = ConvexHull(x[1:] / size).equations
    except QhullError:  # the others are flat
        return float("nan")
    above = float((facets @ np.append(x[0] / size, 1.0)).max())
    if abs(above) < 1e-7:
        return float("nan")
    extreme = widest_separation(x, 0)[1] > LEAST_MARGIN * size
    return 1.0 if extreme != (above > 0) else -abs(above)


@claim(
    "wen2023/definition-4.2",
    "The memorizers of depth 2 to 5 interpolate with one-hot hidden layers, each input on a neuron "
    "of its own; the four-neuron generalizer does not memorize.",
    source="Definition 4.2",
    evidence="enumeration",
)
def definition_4_2() -> Verdict:
    data = ft.Xor(8, distinct=True).draw(24, 0)
    wrong = 0
    for depth in (2, 3, 4, 5):
        model, params, _ = ft.memorizer(data, depth=depth, width=30)
        wrong += not ft.memorizes(model, params, data)
        layers = [a > 0 for a in hidden_layers(model, params, data.x)]
        wrong += sum(int((a.sum(axis=1) != 1).sum() + (a.sum(axis=0) > 1).sum()) for a in layers)
    model, params, _ = ft.xor_generalizer(data)
    wrong += ft.memorizes(model, params, data)
    return equal(wrong, 0, 0.0, "inputs or networks that break the definition")


THEOREM_4_1_CASES = [
    (ft.Xor(30, distinct=True).draw(100, 0), 2),
    (ft.Xor(30, distinct=True).draw(100, 0), 3),
    (ft.Xor(12, distinct=True).draw(200, 1), 4),
    (sphere_data(60, 20, 2), 2),
    (sphere_data(40, 5, 3), 3),
    (sphere_data(30, 8, 4), 5),
]


def memorizer_parts(
    built: ft.Construction, data: ft.Dataset, bound: float, note: str
) -> list[Verdict]:
    """That the network has this trace, interpolates and memorizes."""
    model, params, _ = built
    one_hot = equal(not ft.memorizes(model, params, data), 0, 0.0, "memorizing (Definition 4.2)")
    flat = equal(float(ft.trace(model, params, data)), bound, FLAT, note)
    return [flat, fits(model, params, data), one_hot]


def _memorizer_parts(data, depth, bound, note, **constants) -> list[Verdict]:
    return memorizer_parts(ft.memorizer(data, depth=depth, **constants), data, bound, note)


@claim(
    "wen2023/theorem-4.1",
    "For extreme inputs and any depth D a memorizing MLP-Bias of width n has the least trace, "
    "(2D/n) Σ|y_i|^{2(D−1)/D}(‖x_i‖²+1)^{1/D}.",
    source="Theorem 4.1",
    evidence="certificate",
    of=every,
)
def theorem_4_1(factor=1.0, r_factor=1.0) -> Verdicts:
    for data, depth in THEOREM_4_1_CASES:
        r = r_factor * (norms(data) / np.abs(data.y)) ** (1 / depth)
        note = "hypercube and sphere, real labels, D = 2 … 5, n ≤ 200"
        yield from _memorizer_parts(data, depth, factor * theorem_4_1_bound(data, depth), note, r=r)


@universal(
    "wen2023/theorem-4.1/lower-bound",
    "No interpolating MLP-Bias has a smaller trace than (2D/n) Σ|y_i|^{2(D−1)/D}‖x'_i‖^{2/D}.",
    source="Theorem 4.1, Equation (3)",
    refuted_by="points and an MLP-Bias whose trace at its own outputs is below the bound",
    least=1.0,
    attained=True,
    evaluations=1500,
    evidence="proof",
)
def theorem_4_1_lower_bound(factor=1.0) -> Plan:
    """Proof: let a_l be the activations at x' = a_0 and δ_l the derivatives of f by the
    pre-activations of layer l, δ_D = 1. Then ‖∇f‖² = Σ_l ‖δ_l‖²‖a_{l−1}‖², at least
    D (∏_l ‖δ_l‖‖a_{l−1}‖)^{2/D}, and for l < D ‖δ_l‖‖a_l‖ ≥ |δ_l·a_l| = |f|, f being homogeneous in
    the pre-activations of layer l; so the product is at least ‖x'‖|f|^{D−1}. With Lemma 4.1 and
    f = y this is the bound.

    Any network interpolates its own outputs, so data and weights are free. One neuron a layer,
    all weights 1 and w = x'/‖x'‖ at one point attain the bound."""
    for depth, n, d, width in LOWER_BOUND_SIZES:
        shapes = [(width, d + 1), *[(width, width)] * (depth - 2), (width,)]
        size = n * d + sum(int(np.prod(shape)) for shape in shapes)

        def ratio(
            z: np.ndarray, n: int = n, d: int = d, depth: int = depth, shapes=shapes
        ) -> float:
            x, layers = z[: n * d].reshape(n, d), unpacked(z[n * d :], shapes)
            trace, y = own_trace(layers, with_ones(x))
            bound = factor * theorem_4_1_bound(ft.Dataset(x, y), depth)
            return trace / bound if bound > 1e-6 else np.nan

        alone = np.append([1.0, 2.0, *np.array([1.0, 2.0, 1.0]) / np.sqrt(6)], np.ones(depth - 1))
        starts = (alone,) if (n, d, width) == (1, 2, 1) else ()
        yield Family(f"D = {depth}, n = {n}, d = {d}, width {width}", size, ratio, starts)
    data, model = sphere_data(6, 3, seed=0), ft.MLP(20, depth=3, bias=True)
    params = random_interpolator(model, data, seed=0)
    layers = [np.column_stack([params["W1"], params["b1"]]), params["W2"], params["W3"]]
    measured = float(ft.trace(model, params, data))
    yield equal(own_trace(layers, with_ones(data.x))[0], measured, 1e-9, "the trace by hand")


LOWER_BOUND_SIZES = ((2, 1, 2, 1), (2, 3, 2, 3), (3, 1, 2, 1), (3, 2, 2, 2), (4, 1, 2, 1))


def unpacked(z: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """The arrays of these shapes that z has one after the other."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(z, ends[:-1]), shapes, strict=True)]


@claim(
    "wen2023/theorem-4.1/bounds-agree",
    "`lower_bound` is the formula of Theorem 4.1.",
    source="Theorem 4.1",
    evidence="identity",
)
def bounds_agree(factor=1.0) -> Verdict:
    return worst(
        equal(
            ft.lower_bound(ft.MLP(data.n, depth=depth, bias=True), data).value,
            factor * theorem_4_1_bound(data, depth),
            1e-12,
        )
        for data, depth in THEOREM_4_1_CASES
    )


def _kink(off_diagonal: float) -> float:
    """The largest jump of a one-sided derivative of f at a training point, along hidden weights."""
    data = sphere_data(6, 4, seed=1)
    model, params, _ = ft.memorizer(data, depth=3, off_diagonal=off_diagonal)
    h, jump = 1e-6, 0.0
    f = ft.predict(model, params, data.x, data.x)
    for index in np.ndindex(params["W2"].shape):
        shifted = [{**params, "W2": params["W2"].copy()} for _ in range(2)]
        shifted[0]["W2"][index] += h
        shifted[1]["W2"][index] -= h
        up, down = (ft.predict(model, p, data.x, data.x) for p in shifted)
        jump = max(jump, float(np.abs(up + down - 2 * f).max() / h))
    return jump


@claim(
    "wen2023/theorem-4.1/differentiable-as-printed",
    "The printed memorizer of depth 3 is differentiable at the training points.",
    source="Theorem 4.1, proof: W_j = diag(1/r_i)",
    evidence="identity",
    reading="as printed",
)
def differentiable_as_printed() -> Verdict:
    return equal(_kink(0.0), 0.0, 1e-3, "largest jump of ∂f/∂W2 across the kinks of inactive units")


@claim(
    "wen2023/theorem-4.1/differentiable-corrected",
    "With negative off-diagonal hidden weights the memorizer of depth 3 is differentiable at the "
    "training points and as flat.",
    source="Theorem 4.1, proof: W_j = diag(1/r_i)",
    evidence="identity",
    reading="as corrected",
)
def differentiable_corrected() -> Verdict:
    jump = equal(_kink(-0.1), 0.0, 1e-3, "largest jump of ∂f/∂W2")
    data = sphere_data(6, 4, seed=1)
    return provided(jump, *_memorizer_parts(data, 3, theorem_4_1_bound(data, 3), "flatness"))


@misprint(
    "wen2023/theorem-4.1/zero-label-",
    printed="Where y_i = 0 the printed choice r_i = u_i = 1 attains the least trace.",
    corrected="Where y_i = 0 a memorizing solution approaches the least trace as u_i → 0 and does "
    "not attain it: its activation must not be 0.",
    source="Theorem 4.1, proof, last line",
    evidence="certificate",
)
def zero_label(as_printed: bool, factor=1.0) -> Verdict:
    data = sphere_data(12, 5, seed=0, zeros=3)
    bound = factor * theorem_4_1_bound(data, 2)
    if as_printed:
        note = "the last activation of such a point alone costs u_i² = 1"
        return assuming(*_memorizer_parts(data, 2, bound, note, silence=1.0))
    return provided(*_memorizer_parts(data, 2, bound, "u_i = 1e-7", silence=1e-7))


@misprint(
    "wen2023/equation-4/",
    printed="The bound is reached when W2 ⊙ 1[W1'x'_i > 0] = relu(W1'x'_i)/‖x'_i‖, as for the "
    "memorizer.",
    corrected="The bound is reached when W2 ⊙ 1[W1'x'_i > 0] = sign(y_i) relu(W1'x'_i)/‖x'_i‖.",
    source="Equation (4)",
    evidence="identity",
)
def equation_4(as_printed: bool, factor=1.0) -> Verdict:
    """max |W2 ⊙ 1[W1' x'_i > 0] − (sign y_i) factor relu(W1' x'_i)/‖x'_i‖| for the memorizer."""
    data = ft.Xor(10, distinct=True).draw(30, 0)
    _, params, _ = ft.memorizer(data)
    h = data.x @ params["W1"].T + params["b1"]
    right = factor * np.maximum(h, 0) / norms(data)[:, None]
    if not as_printed:
        right *= np.sign(data.y)[:, None]
    residual = np.abs(params["W2"] * (h > 0) - right).max()
    return equal(residual, 0.0, 1e-9, "labels −1 have W2 < 0" if as_printed else "")


def _generalizer(d: int, n: int, r: float, factor: float = 1.0) -> list[Verdict]:
    data = ft.Xor(d).draw(n, 0)
    model, params, _ = ft.xor_generalizer(data, r=r)
    bound = factor * 4 * np.sqrt(d + 1)
    flat = equal(float(ft.trace(model, params, data)), bound, FLAT, f"d = {d}, n = {n}")
    error = population_error(model, params, data).value
    return [flat, fits(model, params, data), equal(error, 0.0, 0.0, "zero-one error")]


@misprint(
    "wen2023/equation-5/r-",
    printed="With r = (d²+1)^{1/4} the four-neuron network has the least trace.",
    corrected="With r = (d+1)^{1/4} the four-neuron network interpolates, generalizes and has the "
    "least trace 4√(d+1).",
    source="Equation (5)",
    evidence="certificate",
)
def equation_5(as_printed: bool, factor=1.0, r_factor=1.0) -> Verdict:
    r = (30**2 + 1) ** 0.25 if as_printed else r_factor * 31**0.25
    return (assuming if as_printed else provided)(*_generalizer(30, 100, r, factor))


@misprint(
    "wen2023/equation-5/index-",
    printed="W2[2i+j] = (−1)^{i+j}/r belongs to neuron 2i+j+1.",
    corrected="W2[2i+j+1] = (−1)^{i+j}/r.",
    source="Equation (5)",
    evidence="identity",
)
def equation_5_index(as_printed: bool) -> Verdict:
    """The interpolation error of (5) with W2[2i + j + 1 − shift] = (−1)^{i+j}/r, 1-based."""
    data = ft.Xor(6).draw(40, 0)
    model, params, _ = ft.xor_generalizer(data)
    shift = 1 if as_printed else 0
    W2 = np.append(params["W2"][shift:], np.zeros(shift))
    return fits(model, {**params, "W2": W2}, data)


@claim(
    "wen2023/proposition-4.1",
    "For n distinct points a flattest memorizer has zero-one error max(1 − n/2^d, 0).",
    source="Proposition 4.1",
    evidence="enumeration",
    of=every,
)
def proposition_4_1(factor=1.0) -> Verdicts:
    for d, n in ((12, 500), (5, 20), (5, 32), (10, 1)):
        data = ft.Xor(d, distinct=True).draw(n, seed=d)
        model, params, _ = ft.memorizer(data)
        error = population_error(model, params, data).value
        yield equal(error, factor * max(1 - n / 2**d, 0), 1e-12, "d ≤ 12, all of {−1, 1}^d")
        yield from _memorizer_parts(data, 2, theorem_4_1_bound(data, 2), "flatness")


@misprint(
    "wen2023/proposition-4.1/repeats-",
    printed="For n i.i.d. samples the memorizer's zero-one error is max(1 − n/2^d, 0).",
    corrected="With n' distinct points among the samples the error is 1 − n'/2^d.",
    source="Proposition 4.1",
    evidence="enumeration",
)
def repeats(as_printed: bool) -> Verdict:
    data = ft.Xor(6).draw(60, seed=0)
    model, params, _ = ft.memorizer(data)
    error = population_error(model, params, data).value
    count = data.n if as_printed else len(np.unique(data.x, axis=0))
    return equal(error, max(1 - count / 2**data.d, 0), 1e-12, "i.i.d. points, d = 6, n = 60")


@claim(
    "wen2023/proposition-4.2",
    "A flattest 2-MLP-Bias with four active neurons has zero-one error 0, for any n ≥ 4.",
    source="Proposition 4.2",
    evidence="certificate",
)
def proposition_4_2(factor=1.0, r_factor=1.0) -> Verdict:
    sizes = ((30, 100), (12, 2000), (5, 4), (60, 300))
    return every(
        part for d, n in sizes for part in _generalizer(d, n, r_factor * (d + 1) ** 0.25, factor)
    )


@claim(
    "wen2023/proposition-4.2/width-as-printed",
    "For any n, also n = 1, a 2-MLP-Bias of width n has zero-one error 0.",
    source="Proposition 4.2",
    evidence="inequality",
    reading="as printed",
)
def width_as_printed() -> Verdict:
    data, model = ft.Xor(4).draw(1, 0), ft.MLP(1, bias=True)
    errors = [population_error(model, model.init(4, seed), data).value for seed in range(500)]
    note = "one neuron has outputs of one sign, so at least half of the cube is wrong"
    return at_most(min(errors), 0.0, 0.0, note)


@claim(
    "wen2023/proposition-4.2/width-corrected",
    "For any n a 2-MLP-Bias of width max(n, 4) has zero-one error 0.",
    source="Proposition 4.2",
    evidence="certificate",
    reading="as corrected",
)
def width_corrected() -> Verdict:
    return every(part for n in (1, 2, 3) for part in _generalizer(4, n, 5**0.25))


@claim(
    "wen2023/section-2/zero-one-as-printed",
    "The zero-one loss for evaluating a model is Pr(y f(x) > 0).",
    source="Section 2, Loss; also after Theorem 3.1",
    evidence="enumeration",
    reading="as printed",
)
def zero_one_as_printed() -> Verdict:
    data = ft.Xor(8).draw(30, 0)
    model, params, _ = ft.xor_generalizer(data)
    accuracy = 1 - population_error(model, params, data).value
    return at_most(accuracy, 0.0, 0.0, "this is 1 for a perfect network: the accuracy")


@claim(
    "wen2023/section-2/zero-one-corrected",
    "The zero-one loss is Pr(y f(x) ≤ 0): 0 for the generalizer, 1 off the memorizer's points.",
    source="Section 2, Loss; also after Theorem 3.1",
    evidence="enumeration",
    reading="as corrected",
)
def zero_one_corrected() -> Verdict:
    data = ft.Xor(8, distinct=True).draw(30, 0)
    good = population_error(*ft.xor_generalizer(data)[:2], data).value
    bad = population_error(*ft.memorizer(data)[:2], data).value
    return provided(equal(good, 0.0, 0.0), equal(bad, 1 - 30 / 2**8, 1e-12))
