"""Values of random networks against slow references: derivatives by the product and chain rules
alone, brute force, and what a number means."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import flattest as ft

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support import jets  # noqa: E402

Rng = np.random.Generator
ACTIVATIONS = ("relu", "leaky_relu:0.1", "softplus", "tanh", "silu", "gelu", "quadratic", "relu^3")
ARCHITECTURES: tuple[dict[str, Any], ...] = (
    {},
    {"bias": True},
    {"bias": True, "output_bias": True},
    {"bias": True, "depth": 3},
    {"depth": 4, "output_bias": True},
    {"bias": True, "norm": "sim_bn"},
    {"bias": True, "norm": "sim_ln"},
)


def network(rng: Rng) -> tuple[ft.MLP, dict[str, np.ndarray], ft.Dataset, str]:
    """A network of any kind, its parameters, data and a loss."""
    d, n = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    chosen = ARCHITECTURES[rng.integers(len(ARCHITECTURES))]
    width = int(rng.integers(1, 5))
    model = ft.MLP(width, activation=str(rng.choice(ACTIVATIONS)), **chosen)
    scale = 10.0 ** rng.uniform(-1, 0.3)
    params = {name: scale * rng.normal(size=s) for name, s in model.shapes(d).items()}
    data = ft.Dataset(rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n))
    return model, params, data, str(rng.choice(["mse", "half_mse", "logistic"]))


def dense(rng: Rng) -> tuple[tuple[Any, ...], str, np.ndarray]:
    model, params, data, loss = network(rng)
    hessian = jets.hessian(jets.outputs(model, params, data.x), data, loss)
    return (model, params, data), loss, hessian


def close(found: float, expected: float, scale: float, tol: float = 1e-8) -> bool:
    return bool(abs(found - expected) <= tol * max(scale, 1e-12))


def traces(rng: Rng) -> bool:
    net, loss, hessian = dense(rng)
    size = np.abs(np.diag(hessian)).sum()
    return close(float(ft.trace(*net, loss=loss)), np.trace(hessian), size)


def eigenvalues(rng: Rng) -> bool:
    net, loss, hessian = dense(rng)
    top = float(np.linalg.eigvalsh(hessian)[-1])
    if not hessian.any():
        return True  # a dead network, of which there is nothing to say
    found = ft.top_eigenvalue(*net, loss=loss)
    return close(float(found), top, np.abs(hessian).max(), 1e-7)


def rescalings(rng: Rng) -> bool:
    """The rescaled network has the outputs of the other, its trace is what is said of it, and no
    rescaling that is tried has less."""
    model, params, data, loss = network(rng)
    try:
        found = ft.flattest_rescaling(model, params, data, loss=loss)
    except ft.FlattestError:
        return True
    now = np.asarray(model.apply(found.params, data.x, data.x))
    then = np.asarray(model.apply(params, data.x, data.x))
    if not np.allclose(now, then, rtol=1e-6, atol=1e-8):
        return False
    hessian = jets.hessian(jets.outputs(model, found.params, data.x), data, loss)
    return close(float(found.value), np.trace(hessian), np.abs(np.diag(hessian)).sum(), 1e-6)


def bounds(rng: Rng) -> bool:
    """No interpolator that is found lies below the bound on all of them."""
    n, d = int(rng.integers(1, 5)), int(rng.integers(2, 5))
    model = ft.MLP(8, bias=True, activation=str(rng.choice(ACTIVATIONS[:3])))
    data = ft.Dataset(rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n))
    params = {name: rng.normal(size=s) for name, s in model.shapes(d).items()}
    features = np.asarray(model.sigma.value(data.x @ params["W1"].T + params["b1"]))
    params["W2"] = np.linalg.lstsq(features, data.y, rcond=None)[0]
    if np.abs(features @ params["W2"] - data.y).max() > 1e-9:
        return True
    least = ft.known_lower_bound(model, data)
    hessian = jets.hessian(jets.outputs(model, params, data.x), data)
    return least is None or float(least) <= np.trace(hessian) * (1 + 1e-7)


def memorizers(rng: Rng) -> bool:
    """A construction interpolates, and has the trace that its certificate states."""
    n, d = int(rng.integers(1, 6)), int(rng.integers(2, 5))
    data = ft.xor(n, d, int(rng.integers(100)))
    made = ft.memorizer(data)
    f = jets.outputs(made.model, made.params, data.x)
    hessian = jets.hessian(f, data)
    fits = np.allclose(f.value, data.y, atol=1e-9)
    return fits and close(made.certificate.value, np.trace(hessian), np.trace(hessian))


def interpolators(rng: Rng) -> bool:
    """The least Σ|a_j| that fits, against a linear program."""
    from scipy.optimize import linprog

    n, m = int(rng.integers(1, 5)), int(rng.integers(5, 9))
    features, y = rng.normal(size=(n, m)), rng.normal(size=n)
    found = ft.flattest_interpolator(features, y, 1.0)
    twice = np.hstack([features, -features])
    expected = linprog(np.ones(2 * m), A_eq=twice, b_eq=y).fun
    return close(np.abs(found.a).sum(), expected, expected, 1e-7)


DOORS: dict[str, Callable[[Rng], bool]] = {
    function.__name__: function
    for function in (traces, eigenvalues, rescalings, bounds, memorizers, interpolators)
}
