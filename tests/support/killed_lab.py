"""Setups of a user's own whose runs kill their process, for `test_killed` to go on from.

    python killed_lab.py SETUP STORE [EPOCH]

runs the first seed of the setup's algorithm; with EPOCH the process ends itself by kill −9 as soon
as the run is that far and has saved what it has.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import flattest as ft
from flattest.training import checkpoint

checkpoint.Checkpoints.is_due = property(lambda self: True)
ROWS = np.random.default_rng(0).normal(size=(40, 3))


class Flipped(ft.Distribution, frozen=True):
    """A law of one's own."""

    def sample(self, rng, n):
        x = rng.normal(size=(n, self.d))
        return x, np.sign(x[:, 0])


def equinox_module(d, key):
    import equinox as eqx

    return eqx.nn.MLP(d, "scalar", 6, 1, key=key)


def torch_module(d):
    from torch import nn

    return nn.Sequential(nn.Linear(d, 6), nn.ReLU(), nn.Linear(6, 2))


def torch_adam(params):
    import torch

    return torch.optim.Adam(params, lr=0.02)


def optax_adam():
    import optax

    return optax.adam(0.02)


def setup(name, **settings):
    log = ft.Log(points=30, measures=("training", "test"))
    return ft.Setup(name=name, n=12, seeds=1, challenges=1, log=log, **settings)


SETUPS = {
    "jax": lambda: setup(
        "jax",
        distribution=Flipped(3),
        model=ft.equinox(equinox_module),
        algorithm=(ft.optax(optax_adam(), batch=4, rho=0.05, epochs=120),),
    ),
    "torch": lambda: setup(
        "torch",
        distribution=ft.Dataset(ROWS, ROWS[:, 0] > 0, test=20),
        model=ft.pytorch(torch_module),
        loss="cross_entropy",
        algorithm=(ft.torch_optimizer(torch_adam, batch=4, rho=0.05, epochs=120),),
    ),
}


def run(name, folder, stop=None):
    asked = SETUPS[name]()

    class Place:
        scratch, checkpoints = Path(folder) / "scratch", Path(folder) / "checkpoints"

        def progress(self, *report): ...

    if stop is not None:
        save = checkpoint.Checkpoints.save

        def and_end(self, state, *rest):
            save(self, state, *rest)
            if state.epoch >= stop:
                os.kill(os.getpid(), signal.SIGKILL)

        checkpoint.Checkpoints.save = and_end
    return asked.training(asked.algorithm).execute(0, Place())


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
