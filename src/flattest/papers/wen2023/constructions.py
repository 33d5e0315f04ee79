"""The explicit networks of wen2023's proofs, with the mistakes in print put right.

They are written as the memorizers of Theorems 4.1 and 5.1 are, in `flatness/constructions.py`; the
spike network, which refutes Theorem 3.2, is in `flatness/spikes.py`.

All of them rest on the condition for equality in Theorem 4.1's bound at depth 2, Equation (4) with
its missing sign: W2 ⊙ 1[W1' x'_i > 0] = sign(t_i) relu(W1' x'_i)/‖x'_i‖. A neuron that is active on
training points must take the same value |W2_j| ‖x'_i‖ on all of them; a neuron that is active on
none is free.
"""

import numpy as np

import flattest as ft
from flattest.flatness.bounds import targets
from flattest.flatness.constructions import (
    SILENCE,
    Construction,
    check_resolution,
    construction,
    enough_width,
    extended_norms,
    memorizer,
    one_hot_layer,
    sim_ln_constants,
    sim_ln_memorizer,
)
from flattest.flatness.extreme import Points, distinct
from flattest.flatness.spikes import sim_bn_spike
from flattest.papers.wen2023.circle import bumps_and_plateaus
from flattest.problem.data import require_dataset
from flattest.problem.distributions import hypercube
from flattest.problem.losses import Loss


def xor_generalizer(
    data: ft.Dataset,
    width: int | None = None,
    loss: str | Loss = "mse",
    r: float | None = None,
) -> Construction:
    """Equation (5): the flattest 2-MLP-Bias with four neurons that computes x[1]x[2].

    W1_{2i+j+1} = r ((−1)^i, (−1)^j, 0, …), b1 = −r, W2 = (−1)^{i+j} |t|/r. On the hypercube one
    neuron is at r and the others at −r or −3r, so f = t everywhere, and Equation (4) asks
    |t|/r = r/‖x'‖, that is r = (|t|² (d + 1))^{1/4}. Printed: (d² + 1)^{1/4}.
    """
    t, patterns, signs = _xor(data, loss)
    r = np.sqrt(t * np.sqrt(data.d + 1)) if r is None else r
    model = ft.MLP(enough_width(width, 4), bias=True)
    params = {"W1": r * patterns, "b1": np.full(4, -r), "W2": t / r * signs}
    return construction("wen2023 Equation (5), generalizer", model, params, data, loss)


def head_generalizer(
    data: ft.Dataset,
    s: int,
    width: int | None = None,
    loss: str | Loss = "mse",
    r: np.ndarray | None = None,
) -> Construction:
    """Proposition A.1: a flattest 2-MLP-Bias that sees the first s coordinates only.

    The labels depend on the heads v = x[1:s], which are extreme points of R^s, and ‖x‖ = R.
    The memorizer of the k distinct heads, W1_j = r_j (w_j, 0)/ε, b1_j = r_j (−w_j·v_j + ε)/ε,
    W2_j = t_j/r_j, is one-hot on all x with a known head, and meets Equation (4) on each when
    r_j² = |t_j| √(R² + 1). So it is flattest, and exact wherever the head was seen in training.
    Printed: v_j for w_j in W1, and r² = |y_j| (R² + 1).
    """
    if not isinstance(s, int) or not 1 <= s <= data.d:
        raise ft.FlattestError(f"s must lie between 1 and d = {data.d}, not {s!r}.")
    heads, t, norm = _heads(data, s, loss)
    r = np.where(t == 0, SILENCE, np.sqrt(np.abs(t) * norm)) if r is None else r
    params = one_hot_layer(heads, r, t) | {"W2": t / r}
    model = ft.MLP(enough_width(width, len(t)), bias=True)
    return construction("wen2023 Proposition A.1, generalizer", model, params, data, loss)


def circle_generalizer(
    data: ft.Dataset,
    width: int | None = None,
    loss: str | Loss = "mse",
    half_angle: float = 5e-3,
) -> Construction:
    """Proposition A.2: a flattest 2-MLP-Bias that follows a Lipschitz label on the unit circle.

    The heads (x[1], x[2]) lie on the unit circle at sorted angles θ_i, and ‖x‖ = R. A neuron
    relu(cos(θ − m) − cos φ) is active on the arc of half-angle φ about m.
    - One spike for each point: an arc about θ_i of half-angle at most `half_angle`, free of other
      points, scaled to the value c_i = √(|t_i| √(R² + 1)) at θ_i, with W2 = t_i/c_i: Equation (4).
    - Two neurons for each gap between neighbours, about its midpoint, with nested arcs of
      half-angle φ1 > φ2 inside the gap and opposite W2: their sum is 0 outside, and constant, set
      to the mean of the two labels, on the inner arc. Active on no training point, they cost
      nothing.
    So these 3k neurons interpolate and are flattest. With gaps at most δ, labels L-Lipschitz and at
    most Y, f is within Lδ of the label but for arcs of total length ≤ 4k · `half_angle`, where it
    is within 2Y + Lδ: the mean squared error tends to at most L²δ² as the spikes narrow.

    A spike within a gap g has slopes of order 1/g², which float64 resolves for g ≳ 0.01 only. So
    two closer neighbours with labels of one sign share a spike about their midpoint, which has the
    same value at both, and one of them keeps a spike for the rest of its label, of order Lg.

    Equation (17) as printed does not interpolate: its neurons are active on half of the circle.
    One neuron for each point with an arc between the midpoints would interpolate, but falls to 0 at
    the midpoints, an error of order 1. Arcs √2 times as wide are flattest too where the points are
    evenly spaced, with a relative error of 0.006 (the ledger's proposition-a.2/width-n-even); that
    a flattest network of width n has an error that vanishes with δ is open.
    """
    if data.d < 2:
        raise ft.FlattestError("Proposition A.2 needs inputs with at least two coordinates.")
    heads, t, norm = _heads(data, 2, loss)
    if not np.allclose((heads.x**2).sum(axis=1), 1, rtol=0, atol=1e-12):
        raise ft.FlattestError("Proposition A.2 needs (x[1], x[2]) on the unit circle.")
    angles = np.arctan2(heads.x[:, 1], heads.x[:, 0])
    order = np.argsort(angles)
    neurons, parts = bumps_and_plateaus(angles[order], t[order], norm, half_angle, SILENCE)
    check_resolution(neurons.rise[: len(parts)], parts)
    model = ft.MLP(enough_width(width, len(neurons.W2)), bias=True)
    params = {"W1": neurons.W1, "b1": neurons.b1, "W2": neurons.W2}
    return construction("wen2023 Proposition A.2, generalizer", model, params, data, loss)


def sim_ln_generalizer(
    data: ft.Dataset,
    epsilon: float = 1e-5,
    width: int | None = None,
    loss: str | Loss = "mse",
    r: float | None = None,
    u: float | None = None,
) -> Construction:
    """Proposition 5.2: a flattest 2-MLP-Sim-LN with four neurons that computes x[1]x[2].

    The four one-hot neurons of `xor_generalizer` with activation u in place of r, and
    W2 = r (−1)^{i+j} |t|: u = 2ε, r = 1 when √(d+1)|t| > ε/2, as in `sim_ln_memorizer`.
    """
    t, patterns, signs = _xor(data, loss)
    model = ft.MLP(enough_width(width, 4), bias=True, norm="sim_ln", epsilon=epsilon)
    r, u = map(float, sim_ln_constants(np.sqrt(data.d + 1) * t, epsilon, r, u))
    params = {"W1": u * patterns, "b1": np.full(4, -u), "W2": r * t * signs}
    return construction("wen2023 Proposition 5.2, Sim-LN generalizer", model, params, data, loss)


def sim_bn_optimum(
    data: ft.Dataset,
    width: int | None = None,
    loss: str | Loss = "mse",
    scale: float = 1e6,
) -> Construction:
    """Lemma A.1: the four-neuron 2-MLP-Sim-BN that approaches the least sharpness, 8.

    W1 and b1 are `scale` times those of `xor_generalizer` with r = 1. Pattern j has a share p_j of
    the training points (1/4 each under Condition 1), so neuron j normalized is 1/√p_j on its
    pattern and 0 elsewhere, and γ_j W2_j = (−1)^{i+j} |t| √p_j interpolates. |γ_j| = |W2_j| makes
    2(‖γ‖² + ‖W2‖²) = 4 ‖γ ⊙ W2‖₁ = 4 |t| Σ √p_j, which is 8 |t| under Condition 1, the infimum.
    The gradient with respect to W1 and b1 adds a term of order 1/scale². Printed: W2 = ½ without
    its sign, and γ = 1, which has ‖γ ⊙ W2‖₁ = 2 but not the least ‖γ‖² + ‖W2‖².

    The certificate compares with `lower_bound`, so it holds under Condition 1 only.
    """
    t, patterns, signs = _xor(data, loss)
    if not scale > 0:
        raise ft.FlattestError(f"The scale of W1 must be positive, not {scale!r}.")
    model = ft.MLP(enough_width(width, 4), bias=True, norm="sim_bn")
    share = (data.x[:, None, :2] == patterns).all(axis=2).mean(axis=0)
    weight = np.sqrt(t * np.sqrt(share))
    params = {
        "W1": scale * patterns,
        "b1": np.full(4, -scale),
        "gamma": weight,
        "W2": signs * weight,
    }
    return construction(f"wen2023 Lemma A.1 at scale {scale:g}", model, params, data, loss)


def no_bias_xor(
    data: ft.Dataset,
    width: int | None = None,
    loss: str | Loss = "mse",
    epsilon: float = 1e-3,
) -> Construction:
    """Appendix A.2.4: a 2-MLP-No-Bias with four neurons that computes x[1]x[2], rescaled to be as
    flat as it can.

    W1 = ((1+ε)(−1)^i, (1−ε)(−1)^j, 0, …) and W2 = (−1)^{i+j} |t|/(2 − 2ε): at x one neuron is at 2,
    its neighbour that shares the first sign at 2ε, and f = ±|t| (2 − 2ε)/(2 − 2ε). Rescaling
    neuron j by b, W1 → b W1, W2 → W2/b, makes its share of the trace
    κ (b² A_j + W2_j² B_j/b²) ≥ 2κ |W2_j| √(A_j B_j), A_j = mean relu(W1_j·x)²,
    B_j = mean 1[W1_j·x > 0] ‖x‖²; we take the b of equality. The certificate is for this: the
    least trace in the network's rescaling orbit. It is above the bound 4√d |t| of Theorem 4.1
    without bias by a factor that tends to √2 as ε → 0, for ε = 0 puts half of the points on kinks.
    """
    t, patterns, signs = _xor(data, loss)
    if not 0 < epsilon < 1:
        raise ft.FlattestError(f"The network of A.2.4 needs 0 < ε < 1, not {epsilon!r}.")
    model = ft.MLP(enough_width(width, 4))
    W1, W2 = patterns * [1 + epsilon, 1 - epsilon], signs * t / (2 - 2 * epsilon)
    h = data.x[:, :2] @ W1.T
    A = (np.maximum(h, 0) ** 2).mean(axis=0)
    B = ((h > 0) * (data.x**2).sum(axis=1, keepdims=True)).mean(axis=0)
    if not (A > 0).all():
        raise ft.FlattestError("The network of A.2.4 needs data in which x[1] has both signs.")
    b = (W2**2 * B / A) ** 0.25
    params = {"W1": b[:, None] * W1, "W2": W2 / b}
    kappa = float(np.min(ft.loss(loss).curvature(t * data.y, data.y)))
    least = 2 * kappa * float(np.abs(W2) @ np.sqrt(A * B))
    statement = "wen2023 A.2.4, flattest in its rescaling orbit"
    return construction(statement, model, params, data, loss, least)


def _heads(data: ft.Dataset, s: int, loss: str | Loss) -> tuple[Points, np.ndarray, float]:
    """The distinct heads x[1:s] with their targets, and the common norm ‖x'‖."""
    require_dataset(data)
    norms = extended_norms(data.x)
    if not np.allclose(norms, norms[0], rtol=1e-11, atol=0):
        raise ft.FlattestError("This construction needs inputs that all have the same norm.")
    t = targets(ft.loss(loss), data.y)
    return *distinct(data.x[:, :s], t, f"first {s} coordinates"), norms[0]


def _xor(data: ft.Dataset, loss: str | Loss) -> tuple[float, np.ndarray, np.ndarray]:
    """|t| of xor data, rows ((−1)^i, (−1)^j) and the signs (−1)^{i+j}, for i, j ∈ {0, 1}."""
    require_dataset(data)
    if data.d < 2 or not np.isin(data.x, [-1.0, 1.0]).all():
        raise ft.FlattestError("This construction needs inputs in {−1, 1}^d with d ≥ 2.")
    t = targets(ft.loss(loss), data.y)
    if not np.array_equal(np.sign(t), data.x[:, 0] * data.x[:, 1]) or np.ptp(np.abs(t)) > 0:
        raise ft.FlattestError("This construction needs labels proportional to x[1]x[2].")
    return float(abs(t[0])), hypercube(2), hypercube(2).prod(axis=1)


# By the names that `flattest construct` takes.
CONSTRUCTIONS = {
    build.__name__.replace("_", "-"): build
    for build in (
        memorizer,
        xor_generalizer,
        head_generalizer,
        circle_generalizer,
        sim_ln_memorizer,
        sim_ln_generalizer,
        sim_bn_optimum,
        sim_bn_spike,
        no_bias_xor,
    )
}
