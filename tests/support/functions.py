"""JAX functions with parameters, data and a loss, and their dense ∇²L."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import flattest as ft

RNG = np.random.default_rng(0)


def weights(*shapes):
    rng = np.random.default_rng(1)
    return [rng.normal(size=shape) * 0.7 for shape in shapes]


def residual(p, x):
    """A residual sum, a bias in every layer, two outputs, parameters in nested trees."""
    h = jax.nn.relu(x @ p["first"]["w"] + p["first"]["b"])
    out = jax.nn.leaky_relu(h @ p["up"], 0.1) @ p["down"] + p["shift"]
    return jax.nn.relu(h + out) @ p["last"]


def residual_params():
    w, b, up, down, shift, last = weights((4, 5), (5,), (5, 3), (3, 5), (5,), (5, 2))
    return {"first": {"w": w, "b": b}, "up": up, "down": down, "shift": shift, "last": last}


def convolutional(p, x):
    """Convolution in groups, a per-channel gain, both poolings, a flatten; channels come last."""
    h = jax.lax.conv_general_dilated(
        x, p["c1"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    h = jnp.maximum(h * p["gain"] + p["b1"], 0)
    h = jax.lax.reduce_window(h, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    h = jax.lax.conv_general_dilated(
        h,
        p["c2"],
        (1, 1),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=2,
    )
    h = jnp.where(h > 0, h, 0.1 * h)
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 1, 2, 1), (1, 1, 1, 1), "VALID")
    return h.reshape(len(h), -1) @ p["out"]


def convolutional_params():
    c1, gain, b1, c2, out = weights((2, 2, 1, 2), (2,), (2,), (1, 2, 1, 4), (8, 3))
    return {"c1": c1, "gain": gain, "b1": b1, "c2": c2, "out": out}


NETWORKS = {
    "residual": (residual, residual_params, (7, 4), RNG.normal(size=(7, 2)), "mse"),
    "convolutional": (
        convolutional,
        convolutional_params,
        (6, 4, 6, 1),
        RNG.integers(0, 3, 6),
        "cross_entropy",
    ),
}


def case(name):
    function, params, shape, y, loss = NETWORKS[name]
    return function, params(), (np.random.default_rng(2).normal(size=shape), y), loss


@cache
def measured(name):
    return ft.measure(*case(name))


def dense_hessian(function, params, data, loss):
    """∇²L by forward over reverse differentiation."""
    theta, unravel = ravel_pytree(params)
    x, y = map(jnp.asarray, data)

    def value(v):
        f = function(unravel(v), x)
        if loss == "cross_entropy":
            return -jnp.mean(jax.nn.log_softmax(f)[jnp.arange(len(y)), y])
        return jnp.mean(((f - y.reshape(f.shape)) ** 2).reshape(len(y), -1).sum(1))

    return np.asarray(jax.jit(jax.hessian(value))(theta))


def smooth(p, x):
    return jnp.tanh(x @ p["W"]) @ p["a"]
