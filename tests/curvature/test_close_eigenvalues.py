"""`top_eigenvalue` keeps its tolerance where many eigenvalues lie close together.

Memorizers have them: one neuron per point, n nearly equal blocks of ∇²L. Moved by a little, they
are resolved late, and a criterion that trusts the gap between the values seen so far stops too
early.
"""

import numpy as np
import pytest

import flattest as ft
from flattest.curvature.eigenvalues import top_eigenvalue
from flattest.curvature.sharpness import operator_of

N, D, WIDTH, TOL = 20, 30, 20, 1e-10
DISTANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
OTHERS = {
    "leaky": ft.MLP(width=WIDTH, bias=True, activation="leaky_relu:0.1"),
    "softplus": ft.MLP(width=WIDTH, bias=True, activation="softplus"),
    "tanh": ft.MLP(width=WIDTH, bias=True, activation="tanh"),
    "quadratic": ft.MLP(width=WIDTH, bias=True, activation="quadratic"),
    "output bias": ft.MLP(width=WIDTH, bias=True, output_bias=True),
    "depth 3": ft.MLP(width=WIDTH, bias=True, depth=3),
    "depth 4": ft.MLP(width=WIDTH, bias=True, depth=4),
    "Sim-BN": ft.MLP(width=WIDTH, bias=True, norm="sim_bn"),
    "Sim-LN": ft.MLP(width=WIDTH, bias=True, norm="sim_ln"),
}


def memorizer(model, distance, seed):
    """One neuron per point of the cube, layers above it that pass it on, moved by `distance`."""
    rng = np.random.default_rng(seed)
    x, y = rng.choice([-1.0, 1.0], (N, D)), rng.choice([-1.0, 1.0], N)
    params = {"W1": x, "b1": np.full(WIDTH, 1.0 - D), f"W{model.depth}": y}
    for layer in range(2, model.depth):
        params[f"W{layer}"] = np.eye(WIDTH)
    extra = {"gamma": np.ones(WIDTH), "b_out": np.zeros(())}
    params |= {name: extra[name] for name in model.shapes(D) if name in extra}
    # A change of W1 by `distance` changes 30 terms of each pre-activation.
    noise = {name: rng.normal(size=np.shape(value)) for name, value in params.items()}
    moved = {name: value + distance * noise[name] for name, value in params.items()}
    return moved, ft.Dataset(x, y)


def miss(op):
    """The error of λ_max, relative to the dense Hessian's."""
    dense = op.matmat(np.eye(op.size))
    expected = np.linalg.eigvalsh(0.5 * (dense + dense.T))[-1]
    return abs(top_eigenvalue(op, TOL).value / expected - 1)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize(
    "seeds", [range(1), pytest.param(range(1, 28), marks=pytest.mark.slow)], ids=["one", "more"]
)
def test_relu_networks(distance, seeds):
    model = ft.MLP(width=WIDTH, bias=True)
    for seed in seeds:
        assert miss(operator_of(model, *memorizer(model, distance, seed))) <= TOL


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    "seeds", [range(1), pytest.param(range(1, 16), marks=pytest.mark.slow)], ids=["one", "more"]
)
def test_other_networks(name, seeds):
    model = OTHERS[name]
    for seed in seeds:
        distance = DISTANCES[seed % len(DISTANCES)]
        assert miss(operator_of(model, *memorizer(model, distance, seed))) <= TOL


@pytest.mark.slow
def test_functions():
    model = ft.MLP(width=WIDTH, bias=True)
    own = ft.FunctionModel(lambda params, x: model.apply(params, x, x), model.init)
    for seed in range(16):
        distance = DISTANCES[seed % len(DISTANCES)]
        assert miss(operator_of(own, *memorizer(model, distance, seed))) <= TOL
