"""What a training set asks of a two-layer network: rows r_h, targets t_h, the unit of the trace.

f(x) = Σ_j a_j σ(w_j·x̃), x̃ = x or (x, 1), σ with the slopes α below 0 and β above (ReLU: 0 and 1).
At an interpolator of a loss with curvature κ the trace of the Hessian is
Tr ∇²L = (κ/n) Σ_j [‖σ(X̃w_j)‖² + a_j² Σ_i σ′(w_j·x̃_i)² ‖x̃_i‖²]
(wen2023, Lemma 4.1), and 2 (κ/n) Σ_j |a_j| ‖σ(X̃w_j)‖ √(Σ_i σ′_ij² ‖x̃_i‖²) after the best
rescaling of every neuron.

Inputs on one ray from 0 (equal inputs among them) are one condition: for x̃_i = c_i z, c_i > 0 and
‖z‖ = 1, σ(w·x̃_i) = c_i σ(w·z), so that their targets must be c_i times one number τ. With
C = Σ c_i² they contribute C σ(w·z)² to the first sum and σ′² C to the second, exactly as the single
row r = √C z with the target √C τ does. So every training set is a set of rows of which no two lie
on one ray. An input x̃ = 0 has f = 0 whatever the network, and is left out.

Outputs on the data depend on w only through R w, so that coordinates v with w = `basis` v may be
chosen freely as long as they reach all R w. They are chosen such that the columns of R are
orthonormal, which is the best condition that rows can have; the lengths ‖r_h‖, which are those of
the given coordinates, are kept beside them.
"""

from typing import NamedTuple

import numpy as np

from flattest.errors import FlattestError
from flattest.flatness.bounds import targets
from flattest.problem.data import Dataset, require_dataset
from flattest.problem.losses import Loss, loss as resolve_loss
from flattest.problem.models import MLP

PARALLEL = 1e-13
NEARLY_PARALLEL = 1e-9
RANK = 1e-10


class Rows(NamedTuple):
    """Rows R (k, D) with orthonormal columns, lengths ‖r_h‖ (k,) of which the largest is 1,
    targets t (k,) of which the largest is ±1, and σ's slopes.

    Neurons c_j σ(v_j·) with Σ_j ±c_j σ(R v_j) = t have w_j = basis v_j and Tr ∇²L = unit · Σ_j c_j
    ρ_j ‖σ(R v_j)‖, and Σ_j ±size c_j σ(w_j·x̃) is their network. `given` are the rows in the inputs'
    own coordinates: R = given · basis.
    """

    R: np.ndarray
    lengths: np.ndarray
    t: np.ndarray
    slopes: tuple[float, float]
    unit: float
    size: float
    basis: np.ndarray
    given: np.ndarray

    def outputs(self, v: np.ndarray) -> np.ndarray:
        """σ(R v) for each row of v."""
        return activated(v @ self.R.T, self.slopes)

    def weights(self, v: np.ndarray) -> np.ndarray:
        """ρ = √(Σ_h σ′(r_h·v)² ‖r_h‖²) for each row of v."""
        slope = np.where(v @ self.R.T > 0, self.slopes[1], self.slopes[0])
        return np.sqrt(slope**2 @ self.lengths**2)


def activated(h: np.ndarray, slopes: tuple[float, float]) -> np.ndarray:
    """σ(h)."""
    return np.where(h > 0, slopes[1], slopes[0]) * h


def rows_of(model: MLP, data: Dataset, loss: str | Loss = "mse") -> Rows:
    """The rows of the training set, or a sentence that says why there are none."""
    slopes = check_model(model)
    require_dataset(data)
    if data.y.ndim != 1:
        raise FlattestError(
            f"The flattest network is found for one output, y (n,), not y {data.y.shape}."
        )
    loss = resolve_loss(loss)
    y = targets(loss, data.y)
    kappa = float(np.asarray(loss.curvature(y, data.y)).min())
    X = extended(data.x, model.bias)
    zero = ~X.any(axis=1)
    if y[zero].any():
        first = int(np.flatnonzero(zero & (y != 0))[0])
        raise FlattestError(
            f"Input x[{first}] is 0 and its label is not: a network without bias is 0 there; "
            "remove it, or ask with a bias."
        )
    if not y.any():
        raise FlattestError("All labels are 0, which the network 0 fits with trace 0.")
    R, t = merged(X[~zero], y[~zero], np.flatnonzero(~zero))
    size, lengths = float(np.abs(t).max()), np.linalg.norm(R, axis=1)
    unit = 2 * kappa / data.n * lengths.max() * size
    orthonormal, basis = coordinates(R)
    return Rows(orthonormal, lengths / lengths.max(), t / size, slopes, unit, size, basis, R)


def check_model(model: MLP) -> tuple[float, float]:
    """σ's slopes for a network that the convex program is about; refuses others."""
    if not isinstance(model, MLP):
        raise FlattestError(
            "The flattest network is found for ft.MLP with two layers and one output, "
            f"not for a {type(model).__name__}."
        )
    slopes = model.sigma.slopes
    plain = model.depth == 2 and model.norm is None and not model.output_bias
    if not plain or slopes is None or slopes[0] == slopes[1]:
        raise FlattestError(
            "The flattest network is a convex question for two layers with ReLU or leaky ReLU, "
            "without norm or output bias; for others use search_flattest."
        )
    return slopes


def extended(x: np.ndarray, bias: bool) -> np.ndarray:
    """x̃."""
    return np.column_stack([x, np.ones(len(x))]) if bias else np.asarray(x, float)


def merged(X: np.ndarray, y: np.ndarray, names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One row √C z with target √C τ for the inputs on each ray."""
    c = np.linalg.norm(X, axis=1)
    Z = X / c[:, None]
    kept: list[int] = []
    group = np.empty(len(X), int)
    for i, z in enumerate(Z):
        far = np.abs(Z[kept] - z).max(axis=1) if kept else np.zeros(0)
        near = np.flatnonzero(far <= NEARLY_PARALLEL)
        if len(near) and far[near[0]] > PARALLEL:
            raise FlattestError(
                f"Inputs x[{names[kept[near[0]]]}] and x[{names[i]}] are almost on one ray from 0, "
                "too close for float64 to tell their patterns apart; remove one."
            )
        group[i] = near[0] if len(near) else len(kept)
        if not len(near):
            kept.append(i)
    tau = y / c
    _check_consistent(tau, group, kept, names, c)
    root = np.sqrt(np.bincount(group, c**2))
    return root[:, None] * Z[kept], root * tau[kept]


def _check_consistent(tau, group, kept, names, c) -> None:
    first = np.asarray(kept)[group]
    differs = np.flatnonzero(np.abs(tau - tau[first]) > 1e-12 * np.abs(tau).max())
    if len(differs):
        i, j = sorted((int(names[first[differs[0]]]), int(names[differs[0]])))
        same = np.isclose(c[first[differs[0]]], c[differs[0]], rtol=1e-12)
        where = "are equal" if same else "lie on one ray from 0"
        raise FlattestError(
            f"Inputs x[{i}] and x[{j}] {where} and their labels are not in proportion, so no "
            "network of this kind interpolates the data; remove one."
        )


def coordinates(R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R B with orthonormal columns, and B (D, rank)."""
    U, sizes, directions = np.linalg.svd(R, full_matrices=False)
    rank = int(np.sum(sizes > RANK * sizes[0]))
    return U[:, :rank], directions[:rank].T / sizes[:rank]
