"""Appendix A.3.2: flattest networks with bias that generalize (Propositions A.1 and A.2)."""

import itertools

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, at_most, equal
from flattest.flatness.certification import population_mse
from flattest.ledger.claim import Verdicts, assuming, claim, every, misprint, provided
from flattest.papers.wen2023.claims.instances import max_error
from flattest.problem.randomness import generator

HEADS = np.array(list(itertools.product([-1.0, 1.0], repeat=3)))
LABELS = generator(0, "claims/proposition-a.1").normal(size=len(HEADS))
RADIUS = 4.0


def head_data(n: int, seed: int, d: int = 10) -> ft.Dataset:
    """Labels that depend on a head in {−1, 1}³; ‖x‖ = 4 by a tail uniform on a sphere."""
    rng = generator(seed, "claims/head data")
    head = np.concatenate([np.arange(8), rng.integers(0, 8, n - 8)])
    tail = rng.normal(size=(n, d - 3))
    tail *= np.sqrt(RADIUS**2 - 3) / np.linalg.norm(tail, axis=1, keepdims=True)
    return ft.Dataset(np.hstack([HEADS[head], tail]), LABELS[head])


@misprint(
    "wen2023/proposition-a.1/r-",
    printed="With r² = |y_j|(R²+1) the network of (16) has the least trace.",
    corrected="With r² = |y_j|√(R²+1) the network of (16) interpolates, has the least trace and "
    "generalizes.",
    source="Proposition A.1",
    evidence="certificate",
)
def proposition_a1(as_printed: bool, factor=1.0, r_factor=1.0) -> Verdict:
    r = r_factor * np.sqrt(np.abs(LABELS) * (RADIUS**2 + 1) ** (1.0 if as_printed else 0.5))
    data, fresh = head_data(60, 0), head_data(500, 1)
    # Heads in the order of their first occurrence, as the construction takes them.
    model, params, _ = ft.head_generalizer(data, 3, r=r)
    bound = factor * 4 * np.sqrt(RADIUS**2 + 1) * np.abs(data.y).mean()
    test = np.abs(ft.predict(model, params, fresh.x, data.x) - fresh.y).max()
    return (assuming if as_printed else provided)(
        equal(float(ft.trace(model, params, data)), bound, 1e-9, "8 heads, real labels, d = 10"),
        equal(max_error(model, params, data), 0.0, 1e-10, "interpolation error"),
        equal(test, 0.0, 1e-9, "error on fresh points"),
    )


@misprint(
    "wen2023/proposition-a.1/weights-",
    printed="W1_j = r[v_j, 0]/ε in (16).",
    corrected="W1_j = r[w_j, 0]/ε in (16).",
    source="Equation (16)",
    evidence="identity",
)
def weights(as_printed: bool) -> Verdict:
    """The interpolation error of (16), with the printed v_j or with w_j = v_j/‖v_j‖ in W1."""
    data, epsilon = head_data(60, 0), 0.1
    r = np.sqrt(np.abs(LABELS) * np.sqrt(RADIUS**2 + 1))
    w = HEADS / np.sqrt(3)
    first = HEADS if as_printed else w
    params = {
        "W1": np.pad(r[:, None] * first / epsilon, ((0, 0), (0, 7))),
        "b1": r * (epsilon - (w * HEADS).sum(axis=1)) / epsilon,
        "W2": LABELS / r,
    }
    error = max_error(ft.MLP(8, bias=True), params, data)
    return equal(error, 0.0, 1e-9, "interpolation error of (16), ε = 0.1")


def equation_17(data: ft.Dataset, bias_from: str) -> tuple[ft.MLP, dict]:
    """Equation (17): w_j is normal to the chord from z_j to z_{j+1}, the midpoints of the arcs.

    `bias_from` "v": as printed, zero where w_j·(v − v_j + z_j) = 0, half of the circle away.
    "z": zero on the chord itself, so that neuron j is active on its own arc only.
    """
    angle = np.arctan2(data.x[:, 1], data.x[:, 0])
    order = np.argsort(angle)
    angle, y = angle[order], data.y[order]
    gaps = np.diff(angle, append=angle[0] + 2 * np.pi)
    left, right = angle - np.roll(gaps, 1) / 2, angle + gaps / 2
    middle = (left + right) / 2
    w = np.column_stack([np.cos(middle), np.sin(middle)])
    wv, wz = np.cos(angle - middle), np.cos(left - middle)
    r = np.sqrt(np.abs(y) * np.sqrt((data.x[0] ** 2).sum() + 1))
    slope = {"v": r / wz, "z": r / (wv - wz)}[bias_from]
    offset = {"v": slope * (wz - wv), "z": -slope * wz}[bias_from]
    W1 = np.pad(slope[:, None] * w, ((0, 0), (0, data.d - 2)))
    return ft.MLP(data.n, bias=True), {"W1": W1, "b1": offset, "W2": y / r}


@claim(
    "wen2023/equation-17/as-printed",
    "The width-n network of (17) interpolates.",
    source="Proposition A.2, Equation (17)",
    evidence="identity",
    reading="as printed",
)
def equation_17_as_printed() -> Verdict:
    data = ft.Circle(label="cos2").draw(20, 0)
    error = max_error(*equation_17(data, "v"), data)
    return equal(error, 0.0, 1e-9, "its neurons are active on half of the circle")


@claim(
    "wen2023/equation-17/corrected",
    "With zeros on the chord z_j z_{j+1}, W1_j = r w_j/(w_j·(v_j − z_j)), the network of (17) "
    "interpolates and has the least trace.",
    source="Proposition A.2, Equation (17)",
    evidence="certificate",
    reading="as corrected",
)
def equation_17_corrected(factor=1.0) -> Verdict:
    data = ft.Circle(label="cos2").draw(20, 0)
    model, params = equation_17(data, "z")
    bound = factor * ft.lower_bound(model, data).value
    flat = equal(float(ft.trace(model, params, data)), bound, 1e-9, "n = 20")
    return provided(flat, equal(max_error(model, params, data), 0.0, 1e-9, "interpolation error"))


@claim(
    "wen2023/proposition-a.2/width-n-as-printed",
    "The width-n network of (17), once it interpolates, has generalization error O(δ²).",
    source="Proposition A.2",
    evidence="scaling law",
    reading="as printed",
)
def width_n_as_printed() -> Verdict:
    sets = [ft.Circle(label="cos2").draw(n, 1) for n in (25, 200)]
    errors = [population_mse(*equation_17(data, "z"), data).value for data in sets]
    note = (
        "MSE at n = 200 over MSE at n = 25, where δ² falls 64-fold: f is 0 between any two points. "
        "A flattest neuron has one value on all training points it is active on, hence is active "
        "on two points of a circle at most; no width-n network that follows the label is known"
    )
    return at_most(errors[1] / errors[0], 1 / 8, 0.0, note)


@claim(
    "wen2023/proposition-a.2/width-n-corrected",
    "With three neurons for each point a flattest minimizer has error at most L²δ² but for spikes "
    "of total length ≤ 4nφ, φ their half-angle.",
    source="Proposition A.2",
    evidence="certificate",
    reading="as corrected",
    of=every,
)
def width_n_corrected(factor=1.0) -> Verdicts:
    phi, Y, L = 5e-3, 1.0, 2.0

    for n in (20, 40, 80):
        data = ft.Circle(label="cos2").draw(n, 2)
        model, params, _ = ft.circle_generalizer(data, half_angle=phi)
        bound = factor * ft.lower_bound(model, data).value
        yield equal(float(ft.trace(model, params, data)), bound, 1e-9, "trace, n ≤ 80")
        yield equal(max_error(model, params, data), 0.0, 1e-9, "interpolation error")
        angle = np.sort(np.arctan2(data.x[:, 1], data.x[:, 0]))
        delta = np.diff(angle, append=angle[0] + 2 * np.pi).max()
        allowed = (L * delta) ** 2 + 4 * n * phi / (2 * np.pi) * (2 * Y + L * delta) ** 2
        yield at_most(population_mse(model, params, data).value, allowed, 0.0, "MSE")
