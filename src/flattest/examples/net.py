"""A small network to measure: one hidden layer of 16 ReLU units, 8 inputs, one output.

flattest measure net.safetensors --model net.py:build --data data.npz
"""

from collections.abc import Callable, Mapping

import jax
import numpy as np

SIZES = (8, 16)  # inputs, units
POINTS = 200


def build() -> Callable[..., jax.Array]:
    """The network without its parameters, as a JAX function of them and of the inputs."""

    def network(params: Mapping[str, jax.Array], x: jax.Array) -> jax.Array:
        return jax.nn.relu(x @ params["W1"] + params["b1"]) @ params["w2"]

    return network


def parameters() -> dict[str, np.ndarray]:
    """Drawn at random, then every unit scaled: its weights by c, what it gives out by 1/c.

    The function is that of c = 1, and the trace of ∇²L many times as large.
    """
    rng = np.random.default_rng(0)
    d, m = SIZES
    W1, b1, w2 = rng.normal(size=(d, m)), rng.normal(size=m), rng.normal(size=m)
    c = 2.0 ** rng.integers(-3, 4, size=m)
    return {"W1": c * W1, "b1": c * b1, "w2": w2 / c}


def data() -> dict[str, np.ndarray]:
    """Inputs, and what the network answers: it interpolates them."""
    x = np.random.default_rng(1).normal(size=(POINTS, SIZES[0]))
    return {"x": x, "y": np.asarray(build()(parameters(), x))}
