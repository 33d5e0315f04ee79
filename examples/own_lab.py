"""Data, networks and algorithms of one's own, to be judged.

flattest judge examples/own_lab.py:parity      a distribution class of one's own
flattest judge examples/own_lab.py:network     a JAX function as the network
flattest judge examples/own_lab.py:step        a step of one's own
flattest judge examples/own_lab.py:digits      handwritten digits with a held-out set, Adam
flattest judge examples/own_lab.py:asam        adaptive SAM on xor with bias
flattest judge examples/own_lab.py:adam        Adam on the same
"""

import jax
import jax.numpy as jnp
import numpy as np

import flattest as ft


class ThreeParity(ft.Distribution, frozen=True):
    """x uniform on {−1, 1}^d, y = x[1] x[2] x[3], flipped with probability `flip`."""

    flip: float = 0.0

    def sample(self, rng, n):
        x = 1.0 - 2.0 * rng.integers(0, 2, (n, self.d))
        flipped = 1 - 2 * (rng.uniform(size=n) < self.flip)
        return x, x[:, 0] * x[:, 1] * x[:, 2] * flipped


def parity() -> ft.Setup:
    return ft.Setup(
        name="three-parity",
        distribution=ThreeParity(8),
        n=100,
        model=ft.MLP(100, bias=True),  # without bias the odd part of f is linear: no 3-parity
        algorithm=(ft.sam(0.01, 0.1, epochs=3_000),),
        seeds=3,
    )


def two_tanh_layers(params, x):
    hidden = jnp.tanh(jnp.tanh(x @ params["A"]) @ params["B"])
    return hidden @ params["c"]


def init(d, seed, width=20):
    rng = np.random.default_rng(seed)
    return {
        "A": rng.normal(size=(d, width)) / np.sqrt(d),
        "B": rng.normal(size=(width, width)) / np.sqrt(width),
        "c": rng.normal(size=width) / np.sqrt(width),
    }


def network() -> ft.Setup:
    return ft.Setup(
        name="two-tanh-layers",
        distribution=ft.Xor(6),
        n=40,
        model=ft.FunctionModel(two_tanh_layers, init, "two tanh layers"),
        algorithm=(ft.adam(0.003, batch=8, rho=0.05, epochs=400),),
        challenge=None,
        seeds=3,
    )


RATE = 0.02
MODEL = ft.MLP(50, bias=True)


def clipped_step(params, batch, key):
    x, y = batch
    g = jax.grad(lambda p: jnp.mean((MODEL.apply(p, x) - y) ** 2))(params)
    return {name: p - RATE * jnp.clip(g[name], -1, 1) for name, p in params.items()}


def step() -> ft.Setup:
    return ft.Setup(
        name="clipped-step",
        distribution=ft.Xor(6),
        n=40,
        model=MODEL,
        algorithm=(ft.own_step(clipped_step, epochs=500),),
        seeds=3,
    )


def digits() -> ft.Setup:
    return ft.Setup(
        name="digits-3-8",
        distribution=ft.Digits(classes=(3, 8), inputs="unit"),
        n=100,
        model=ft.MLP(100, bias=True),
        algorithm=(ft.adam(0.003, batch=20, epochs=300),),
        seeds=3,
    )


def asam() -> ft.Setup:
    return ft.Setup(
        name="asam-bias",
        distribution=ft.Xor(20),
        n=80,
        model=ft.MLP(100, bias=True),
        algorithm=(ft.asam(0.01, 0.5, epochs=1_000),),
        seeds=5,
    )


def adam() -> ft.Setup:
    return ft.Setup(
        name="adam-bias",
        distribution=ft.Xor(20),
        n=80,
        model=ft.MLP(100, bias=True),
        algorithm=(ft.adam(0.003, batch=20, epochs=1_000, decay=ft.Cosine()),),
        seeds=3,
    )


if __name__ == "__main__":
    print(parity(), network(), step(), asam(), adam(), sep="\n")
