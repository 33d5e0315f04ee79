"""The general engines against what a user would write: optax in one jitted loop, PyTorch eager.

Single thread, float32, a network with two hidden layers of 64 and a bias in each, n = 200, d = 30,
batches of 20. The contestants take turns; shown is the median of five alternations, and the ratio
ours / theirs, which is to be at most 1.1. That both take the same steps is held by the tests
(tests/training/test_optimizers.py, tests/lab/test_libraries.py).
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import statistics
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from rich.console import Console
from rich.table import Table

import flattest as ft
from flattest.training import loop, module_engine
from flattest.training.state import Problem, State

N, D, BATCH, WIDTH = 200, 30, 20, 64
LIMIT, ROUNDS = 1.1, 5
DATA = ft.xor(n=N, d=D, seed=0)
LR, RHO = 1e-3, 0.05
PHASES = {
    "Adam": ft.adam(LR, batch=BATCH, epochs=10**9),
    "SAM around Adam": ft.adam(LR, rho=RHO, batch=BATCH, epochs=10**9),
    "momentum": ft.momentum(LR, batch=BATCH, epochs=10**9),
    "ASAM": ft.asam(LR, 0.5, batch=BATCH, epochs=10**9),
}
OPTAX = {"Adam": optax.adam(LR), "momentum": optax.sgd(LR, momentum=0.9), "ASAM": optax.sgd(LR)}
TORCH: dict[str, Callable] = {
    "Adam": lambda p: torch.optim.Adam(p, lr=LR),
    "momentum": lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9),
    "ASAM": lambda p: torch.optim.SGD(p, lr=LR),
}


def base(name: str) -> str:
    return name.removeprefix("SAM around ")


# In JAX


def ours_in_jax(name: str, epochs: int) -> Callable[[], None]:
    model = ft.DeepMLP((WIDTH, WIDTH))
    problem = Problem(model, DATA, ft.MSE(), seed=0)
    start = State({key: np.float32(value) for key, value in model.init(D, 0).items()})
    return lambda: loop.advance(problem, PHASES[name], start, epochs)


def jitted_loop(name: str, epochs: int) -> Callable[[], None]:
    """All epochs in one compiled loop over shuffled batches, as one would write it with optax."""
    model, optimizer, phase = ft.DeepMLP((WIDTH, WIDTH)), OPTAX[base(name)], PHASES[name]
    x, y = jnp.asarray(DATA.x, jnp.float32), jnp.asarray(DATA.y, jnp.float32)

    def loss(params, x, y):
        return jnp.mean((model.apply(params, x) - y) ** 2)

    def gradient(params, x, y):
        g = jax.grad(loss)(params, x, y)
        if not phase.rho:
            return g
        if phase.ascent == "adaptive":
            norm = optax.global_norm(jax.tree.map(lambda p, u: jnp.abs(p) * u, params, g))
            above = jax.tree.map(lambda p, u: p + phase.rho * p**2 * u / norm, params, g)
        else:
            norm = optax.global_norm(g)
            above = jax.tree.map(lambda p, u: p + phase.rho * u / norm, params, g)
        return jax.grad(loss)(above, x, y)

    def step(carry, at):
        params, state = carry
        updates, state = optimizer.update(gradient(params, x[at], y[at]), state, params)
        return (optax.apply_updates(params, updates), state), None

    def epoch(carry, key):
        order = jax.random.permutation(key, N).reshape(-1, BATCH)
        return jax.lax.scan(step, carry, order)

    @jax.jit
    def train(params, key):
        keys = jax.random.split(key, epochs)
        return jax.lax.scan(epoch, (params, optimizer.init(params)), keys)[0]

    start = {key: jnp.float32(value) for key, value in model.init(D, 0).items()}
    return lambda: jax.block_until_ready(train(start, jax.random.key(0)))


# In PyTorch


def network(d: int = D) -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(d, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)
    )


def ours_in_pytorch(name: str, epochs: int) -> Callable[[], None]:
    model = ft.pytorch(network)
    problem = Problem(model, DATA, ft.MSE(), seed=0)
    start = State({key: np.float32(value) for key, value in model.init(D, 0).items()})
    return lambda: module_engine.advance(problem, PHASES[name], start, epochs)


def eager_loop(name: str, epochs: int) -> Callable[[], None]:
    """The loop of a tutorial: shuffled batches, backward, the optimizer's step; SAM by hand."""
    phase, make = PHASES[name], TORCH[base(name)]
    x, y = torch.tensor(DATA.x, dtype=torch.float32), torch.tensor(DATA.y, dtype=torch.float32)

    def train() -> None:
        module = network()
        parameters = list(module.parameters())
        optimizer = make(parameters)

        def backward(at) -> None:
            optimizer.zero_grad()
            ((module(x[at])[:, 0] - y[at]) ** 2).mean().backward()

        for _ in range(epochs):
            for at in torch.randperm(N).split(BATCH):
                backward(at)
                if phase.rho:
                    kept = climb(phase, parameters)
                    backward(at)
                    with torch.no_grad():
                        for p, value in zip(parameters, kept, strict=True):
                            p.copy_(value)
                optimizer.step()

    return train


@torch.no_grad()
def climb(phase: ft.Phase, parameters: list[torch.nn.Parameter]) -> list[torch.Tensor]:
    adaptive = phase.ascent == "adaptive"
    scaled = [p.abs() * p.grad if adaptive else p.grad for p in parameters]
    norm = torch.stack([g.norm() for g in scaled]).norm()
    kept = [p.clone() for p in parameters]
    for p in parameters:
        p.add_((p**2 if adaptive else 1.0) * p.grad * (phase.rho / norm))
    return kept


def medians(*contestants: Callable[[], None]) -> list[float]:
    """The median seconds of each, which take turns; the first turn compiles and is not counted."""
    times: list[list[float]] = [[] for _ in contestants]
    for turn in range(ROUNDS + 1):
        for own, contestant in zip(times, contestants, strict=True):
            began = time.process_time()
            contestant()
            if turn:
                own.append(time.process_time() - began)
    return [statistics.median(own) for own in times]


def main() -> int:
    torch.set_num_threads(1)
    table = Table("algorithm", "against", "ours, µs a step", "theirs", "ratio", "at most 1.1")
    worst = 0.0
    pairs = {
        "optax in one jitted loop": (ours_in_jax, jitted_loop, 500),
        "PyTorch eager": (ours_in_pytorch, eager_loop, 20),
    }
    for against, (ours, theirs, epochs) in pairs.items():
        for name in PHASES:
            mine, other = medians(ours(name, epochs), theirs(name, epochs))
            steps, ratio = epochs * (N // BATCH), mine / other
            worst = max(worst, ratio)
            shown = (f"{seconds / steps * 1e6:.1f}" for seconds in (mine, other))
            mark = "✓" if ratio <= LIMIT else "✗"
            table.add_row(name, against, *shown, f"{ratio:.2f}", mark)
    Console().print(table)
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
