"""Bad interpolators whose inner weights have seen the data: what Theorems 2 and 3 do not exclude.

All neurons are orthogonal to span(U), so that by Example 1 the population loss is at least
Var(link) + σ², whatever the outer weights. Theorems 2 and 3 bound S_min for inner weights that were
drawn independently of the data; section 7 says that they "hold for a single model".

Write X_⊥ for the inputs without their part in span(U). As long as n ≤ d − r its rows are
independent (with probability 1), so that for any numbers t_1, …, t_n there is a w ⟂ U with
w·x_i = t_i for all i: w = X_⊥⁺ t. On the training set bad neurons can do all that any neuron can.
"""

import numpy as np

import flattest as ft
from flattest.flatness.constructions import Construction, construction, enough_width
from flattest.problem.data import require_dataset
from flattest.problem.distributions import unit_rows
from flattest.problem.randomness import generator
from flattest.rescaling.two_layer import least_trace


def bad_twin(
    data: ft.Dataset, width: int | None = None, spread: float = 1.0, seed: int = 0
) -> Construction:
    """A bad interpolator with the least trace S_min that Theorem 4's flattest interpolator has.

    The labels are those of a teacher, y = Σ_k α_k σ(u_k·x), without noise or offset. Theorem 4:
    w_j = u_k, a_j = α_k r/m with m/r neurons for each k. Its twin has w_j = X_⊥⁺ X u_k + v_j in the
    place of u_k, with X v_j = 0, v_j ⟂ U. So X w_j = X u_k: on the training set every neuron has
    the teacher's pre-activations. The twin interpolates, and A_j = mean σ(w_j·x_i)² and
    B_j = mean σ′(w_j·x_i)² ‖x_i‖², hence S_min (Lemma 3), are the teacher's, for σ of every degree.
    Off the training set it does not see U.

    The v_j are random, of `spread` times the norm of X_⊥⁺ X u_k, so that the w_j are separated, as
    Definition 2 asks: two with the same k have a cosine of about 1/(1 + spread²). They need
    n < d − r; at n = d − r there is no room for them, and spread must be 0. With a spread of √m the
    cosines that the common part makes are of order 1/m, so that the activations' covariance is as
    well conditioned as that of the random v_j (Assumption 3), and the population loss grows with
    the spread without bound, at the same S_min.
    """
    require_dataset(data)
    U, alpha, link = _noiseless_teacher(data)
    copies = enough_width(width, len(U)) // len(U)
    if width is not None and width % len(U):
        raise ft.FlattestError(f"The width must be a multiple of r = {len(U)}, not {width}.")
    model = ft.MLP(copies * len(U), activation=link)
    outer = np.tile(alpha / copies, copies)
    twins = np.tile(_hidden(data.x, U, data.x @ U.T), (copies, 1))
    sizes = spread * np.linalg.norm(twins, axis=1, keepdims=True)
    W = twins + sizes * _unseen(data.x, U, len(twins), spread, seed)
    teacher = {"W1": np.tile(U, (copies, 1)), "W2": outer}
    flattest = least_trace(model, {"W1": W, "W2": outer}, data).params
    least = least_trace(model, teacher, data).value
    return construction(
        "vardhan2026 Theorem 4's S_min, attained by inner weights orthogonal to U",
        *(model, flattest, data, "mse", least),
    )


def bad_memorizer(data: ft.Dataset, width: int | None = None) -> Construction:
    """A flattest ReLU network without bias, of any width, whose neurons are orthogonal to U.

    Neuron i has w_i = X_⊥⁺ t with t_i = s_i and t_j = −s_i for j ≠ i, and a_i = y_i/s_i: it is
    active on x_i alone, as those of wen2023's Theorem 4.1 are, and a_i² ‖x_i‖² = s_i² at
    s_i² = |y_i| ‖x_i‖ is equality in Tr ∇²L ≥ (4/n) Σ ‖x_i‖ |y_i|, which bounds *every*
    interpolator. Points with y_i = 0 need no neuron. Any labels will do, noisy ones too. So for
    n ≤ d − r the flattest of all interpolators is bad; the teacher, where the labels are its own,
    has 4 √(mean y²) √(mean 1[y>0] ‖x‖²), 1.25 times as much as d → ∞ for one ReLU.
    """
    require_dataset(data)
    U = _distribution(data).directions
    seen = data.y != 0
    s = np.sqrt(np.abs(data.y) * np.linalg.norm(data.x, axis=1))[seen]
    targets = s * (2.0 * np.eye(data.n)[:, seen] - 1)
    params = {"W1": _hidden(data.x, U, targets), "W2": data.y[seen] / s}
    model = ft.MLP(enough_width(width, len(s)))
    statement = "vardhan2026, a flattest network with inner weights orthogonal to U"
    return construction(statement, model, params, data, "mse")


def _distribution(data: ft.Dataset) -> ft.SumOfSingleIndex:
    if not isinstance(data.distribution, ft.SumOfSingleIndex):
        raise ft.FlattestError(
            "Bad interpolators are made for data that were drawn from a single-index model or a "
            "sum of them."
        )
    return data.distribution


def _noiseless_teacher(data: ft.Dataset) -> tuple[np.ndarray, np.ndarray, str]:
    distribution = _distribution(data)
    if distribution.noise or distribution.offset:
        raise ft.FlattestError(
            "A twin has the outputs of the teacher, which noisy or shifted labels are not: draw "
            "from a distribution with noise 0 and offset 0, or ask for bad_memorizer."
        )
    return *distribution.teacher, distribution.link


def _hidden(x: np.ndarray, U: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Rows w_k ⟂ U with w_k·x_i = targets_ik: (X_⊥⁺ targets)ᵀ, with X_⊥ in a basis of U's
    complement."""
    n, room = len(x), x.shape[1] - len(U)
    if n > room:
        raise ft.FlattestError(
            f"n = {n} points leave no freedom in the d − r = {room} directions beside U; "
            "take n ≤ d − r."
        )
    complement = np.linalg.svd(U)[2][len(U) :]
    return np.linalg.lstsq(x @ complement.T, targets, rcond=None)[0].T @ complement


def _unseen(x: np.ndarray, U: np.ndarray, count: int, spread: float, seed: int) -> np.ndarray:
    """Random unit vectors v with v·x_i = 0 and v ⟂ U; zeros where no spread is asked for."""
    if spread == 0:
        return np.zeros((count, x.shape[1]))
    seen = np.concatenate([x, U])
    if len(seen) >= x.shape[1]:
        raise ft.FlattestError(
            f"n + r = {len(seen)} directions leave none of R^{x.shape[1]} unseen to spread the "
            "twins in; take spread = 0."
        )
    kernel = np.linalg.svd(seen)[2][len(seen) :]
    return unit_rows(generator(seed, "bad twin").standard_normal((count, len(kernel)))) @ kernel
