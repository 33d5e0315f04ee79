"""(S)GD near an interpolator: the generalized linear dynamics of mulayoff2021, Sections 2 and 4.

Near θ* with f(x_j; θ*) = y_j the gradient of each mode vanishes (S57), and a step is
θ_{t+1} − θ* = (I − η Ĥ_{m(θ_t)})(θ_t − θ*), with m(θ_t) the mode whose region θ_t is in and Ĥ_m the
Hessian on the batch (S26). Without knots on data points there is one mode, and this is the linear
dynamics of Lemma 1.
"""

from collections.abc import Iterable

import numpy as np

from flattest.stability.functions import UnivariateNetwork
from flattest.stability.modes import tangent_features


def mode_at(network: UnivariateNetwork, x: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """The activation pattern of I (S54) in whose region θ* + ε·offset lies for all small ε > 0."""
    here = network.preactivations(x)
    k = network.width
    there = np.multiply.outer(np.asarray(x, float), offset[:k]) + offset[k : 2 * k]
    return np.where(here == 0, there > 0, here > 0)


def linearized_descent(
    params: "dict | UnivariateNetwork",
    x: np.ndarray,
    offset: np.ndarray,
    lr: float,
    batches: Iterable[np.ndarray],
) -> np.ndarray:
    """θ_t − θ* for t = 0, 1, … from θ_0 = θ* + offset; one array of sample indices for each step.

    `[np.arange(n)] * T` is T steps of full-batch gradient descent.
    """
    network = UnivariateNetwork.of(params)
    x = np.asarray(x, float).reshape(-1)
    path = [np.asarray(offset, float)]
    for batch in batches:
        pattern = mode_at(network, x, path[-1])[batch]
        features = tangent_features(network, x[batch], pattern)
        path.append(path[-1] - lr / len(batch) * features @ (features.T @ path[-1]))
    return np.array(path)


def top_eigenvector(features: np.ndarray) -> np.ndarray:
    """The unit q ∈ R^{3k+1} with ΦΦᵀq = ‖Φ‖² q."""
    return np.linalg.svd(features, full_matrices=False)[0][:, 0]
