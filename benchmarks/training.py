"""Time of one training step: the fused engine against JAX, optax and PyTorch, in one run.

Single thread, d = 30, n = 100, width 500, float32; about two minutes. Times are the least over many
short rounds in which the engines take turns, so that what else the machine does falls on all alike.
Ratios are to JAX's `lax.scan` over the same steps.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numba import njit
from rich.console import Console
from rich.table import Table

from flattest.problem.distributions import xor
from flattest.problem.losses import MSE, Logistic
from flattest.problem.models import MLP
from flattest.training import fused
from flattest.training.algorithms import Phase, sam
from flattest.training.order import sample_order
from flattest.training.state import Problem, State

N, D, WIDTH = 100, 30, 500
ROUNDS = 60
ORDER = sample_order(0, 0, 1, N, replacement=False)[0]


@dataclass(frozen=True)
class Case:
    """One row of the table: a panel of wen2023's Table 2, and the ratio to JAX to reach."""

    name: str
    model: MLP
    loss: MSE | Logistic
    phase: Phase
    target: float


CASES = [
    Case("bias, 1-SAM (4b)", MLP(WIDTH, bias=True), MSE(), sam(0.01, 0.05, epochs=1), 20),
    Case("no bias, 1-SAM (1b)", MLP(WIDTH), MSE(), sam(0.01, 0.05, epochs=1), 20),
    Case("logistic (9b)", MLP(WIDTH, bias=True), Logistic(), sam(0.1, 0.2, epochs=1), 15),
    Case("Sim-LN (6b)", MLP(WIDTH, bias=True, norm="sim_ln"), MSE(), sam(0.01, 0.1, epochs=1), 12),
    Case(
        "softplus (5b)",
        MLP(WIDTH, bias=True, activation="softplus"),
        MSE(),
        sam(0.0005, 0.05, epochs=1),
        6,
    ),
    Case("3 layers (11b)", MLP(WIDTH, 3, bias=True), MSE(), sam(0.01, 0.05, epochs=1), 3),
    Case("Sim-BN (2a)", MLP(WIDTH, bias=True, norm="sim_bn"), MSE(), sam(0.005, 0.1, epochs=1), 3),
]


def problem_of(case: Case, d: int = D) -> tuple[Problem, State]:
    data = xor(n=N, d=d, seed=0)
    params = {k: np.float32(v) for k, v in case.model.init(d, 0).items()}
    return Problem(case.model, data, case.loss, 0), State(params)


def fused_steps(case: Case) -> Callable[[int], None]:
    """Whole epochs, of N steps."""
    problem, state = problem_of(case)

    def run(steps):
        nonlocal state
        state = fused.advance(problem, case.phase, state, steps // N)
        if state.halt is not None:
            raise SystemExit(f"{case.name} halted: {state.halt}")

    return run


def sample_loss(case: Case, problem: Problem):
    train_x = jnp.asarray(problem.data.x, jnp.float32)

    def loss(params, x, y):
        return case.loss.value(case.model.apply(params, x[None], train_x), y).sum()

    return loss


def arrays(problem: Problem):
    return jnp.asarray(problem.data.x, jnp.float32), jnp.asarray(problem.data.y, jnp.float32)


def scan_steps(case: Case) -> Callable[[int], None]:
    """1-SAM as one writes it in JAX: a jitted scan over steps."""
    problem, state = problem_of(case)
    x, y = arrays(problem)
    lr, rho = jnp.float32(case.phase.lr), jnp.float32(case.phase.rho)
    gradient = jax.grad(sample_loss(case, problem))

    def step(params, i):
        g = gradient(params, x[i], y[i])
        norm = jnp.sqrt(sum(jnp.vdot(v, v) for v in g.values()))
        scale = rho / jnp.where(norm > 0, norm, 1)
        g = gradient(jax.tree.map(lambda p, u: p + scale * u, params, g), x[i], y[i])
        return jax.tree.map(lambda p, u: p - lr * u, params, g), None

    scan = jax.jit(lambda params, order: lax.scan(step, params, order)[0])
    params = jax.tree.map(jnp.asarray, state.params)

    def run(steps):
        nonlocal params
        params = jax.block_until_ready(scan(params, ORDER[:steps]))

    return run


def optax_steps(case: Case) -> Callable[[int], None]:
    """`optax.contrib.sam`, one jitted call per step."""
    import optax.contrib

    problem, state = problem_of(case)
    x, y = arrays(problem)
    gradient = jax.grad(sample_loss(case, problem))
    adversary = optax.chain(optax.contrib.normalize(), optax.sgd(case.phase.rho))
    optimizer = optax.contrib.sam(optax.sgd(case.phase.lr), adversary, opaque_mode=True)

    @jax.jit
    def step(params, memory, x, y):
        def at(theta, _):
            return gradient(theta, x, y)

        updates, memory = optimizer.update(gradient(params, x, y), memory, params, grad_fn=at)
        return optax.apply_updates(params, updates), memory

    params = jax.tree.map(jnp.asarray, state.params)
    memory = optimizer.init(params)

    def run(steps):
        nonlocal params, memory
        for i in ORDER[:steps]:
            params, memory = step(params, memory, x[i], y[i])
        jax.block_until_ready(params)

    return run


def torch_steps(case: Case) -> Callable[[int], None]:
    """SAM in eager PyTorch, two-layer networks with a bias."""
    import torch

    torch.set_num_threads(1)
    problem, state = problem_of(case)
    x, y = (torch.tensor(np.float32(v)) for v in (problem.data.x, problem.data.y))
    theta = [torch.tensor(state.params[k], requires_grad=True) for k in ("W1", "b1", "W2")]

    def gradient(i):
        W1, b1, W2 = theta
        loss = (torch.dot(W2, torch.relu(W1 @ x[i] + b1)) - y[i]) ** 2
        return torch.autograd.grad(loss, theta)

    def run(steps):
        for i in ORDER[:steps]:
            g = gradient(i)
            with torch.no_grad():
                norm = torch.sqrt(sum((u * u).sum() for u in g))
                climb = [u * (case.phase.rho / norm) for u in g]
                for p, e in zip(theta, climb, strict=True):
                    p.add_(e)
            g = gradient(i)
            with torch.no_grad():
                for p, e, u in zip(theta, climb, g, strict=True):
                    p.sub_(e).sub_(u, alpha=case.phase.lr)

    return run


def step_times(engines: dict[str, tuple[Callable, int]]) -> dict[str, float]:
    """Least µs per step over rounds in which the engines take turns, each with its own steps."""
    for run, steps in engines.values():
        run(steps)
    best = dict.fromkeys(engines, math.inf)
    for _ in range(ROUNDS):
        for name, (run, steps) in engines.items():
            best[name] = min(best[name], _timed(run, steps) / steps * 1e6)
    return best


def engines_for(case: Case) -> dict[str, tuple[Callable, int]]:
    slow = case.model.depth > 2 or case.model.norm == "sim_bn"
    engines = {
        "ours": (fused_steps(case), 2 * N if slow else 100 * N),
        "scan": (scan_steps(case), 10 if slow else N),
    }
    with suppress(ImportError):
        engines["optax"] = optax_steps(case), 10
    if case is CASES[0]:
        with suppress(ImportError):
            engines["torch"] = torch_steps(case), 10
    return engines


def compare(console: Console) -> None:
    table = Table(title=f"µs per step, d = {D}, n = {N}, width {WIDTH}, float32, one thread")
    for column in (
        "setting",
        "ours",
        "JAX scan",
        "optax jit",
        "PyTorch",
        "ours : scan",
        "to reach",
    ):
        table.add_column(column, justify="left" if column == "setting" else "right")
    for case in CASES:
        t = step_times(engines_for(case))
        ratio = t["scan"] / t["ours"]
        cells = [f"{t[k]:.4g}" if k in t else "–" for k in ("ours", "scan", "optax", "torch")]
        reached = "" if ratio >= case.target else "  short"
        table.add_row(case.name, *cells, f"{ratio:.1f}×", f"{case.target:.0f}×{reached}")
        if "torch" in t:
            console.print(
                f"{case.name}: {t['torch'] / t['ours']:.0f}× eager PyTorch (to reach: 250×)"
            )
    console.print(table)


@njit(nogil=True, fastmath={"contract"})
def _copy_scaled(target, source, repeats):
    for _ in range(repeats):
        for j in range(target.size):
            target[j] = target[j] * source[0] + source[1]


def measured_bandwidth() -> float:
    """GB/s of reading and writing 64 KB, the size of W1, over and over."""
    data, factors = np.zeros(16_000, np.float32), np.array([1, 0], np.float32)
    _copy_scaled(data, factors, 1)
    best = min(_timed(_copy_scaled, data, factors, 200) for _ in range(50))
    return 2 * data.nbytes * 200 / best / 1e9


def measured_peak() -> float:
    """GFlop/s of a library matrix product."""
    a = np.ones((768, 768), np.float32)
    out = np.empty_like(a)
    return 2 * 768**3 / min(_timed(lambda: np.dot(a, a, out=out)) for _ in range(30)) / 1e9


def _timed(function, *arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def roofline(console: Console) -> None:
    """Floor of a 1-SAM step with a bias: 4 flops and, in blocks of 8, a byte a weight."""
    bandwidth, peak = measured_bandwidth(), measured_peak()
    weights = WIDTH * (D + 1)
    flops, traffic = 4 * weights / peak / 1e3, 8 * weights / bandwidth / 1e3
    console.print(
        f"Roofline: {peak:.0f} GFlop/s (matrix product), {bandwidth:.0f} GB/s (64 KB, read and "
        f"write). A step that updates W1 and multiplies it by x takes {flops:.2f} µs of arithmetic "
        f"and {traffic:.2f} µs of traffic if done alone, {traffic / 8:.2f} µs in blocks of 8; the "
        f"floor is {max(flops, traffic / 8):.2f} µs plus the passes over neurons."
    )


def scaling(console: Console) -> None:
    """Time against width and d, and two seeds on two cores."""

    def per_step(width, d):
        case = Case("", MLP(width, bias=True), MSE(), sam(0.001, 0.05, epochs=1), 0)
        problem, state = problem_of(case, d)
        epochs = max(5, 20 * 500 * 30 // (width * d))
        fused.advance(problem, case.phase, state, 1)
        runs = [_timed(fused.advance, problem, case.phase, state, epochs) for _ in range(ROUNDS)]
        return min(runs) / (epochs * N) * 1e6

    widths = [500, 1000, 2000, 4000, 8000]
    by_width = [per_step(width, D) for width in widths]
    by_d = [per_step(500, d) for d in (30, 60, 120, 240)]
    for name, times in (("width 500 … 8000", by_width), ("d 30 … 240", by_d)):
        growth = [b / a for a, b in zip(times, times[1:], strict=False)]
        shown = ", ".join(f"{t:.3g}" for t in times)
        console.print(
            f"Doubling, {name}: {shown} µs per step; largest factor "
            f"{max(growth):.2f} (to reach: 2.2)"
        )


def train_seed(seed: int) -> None:
    problem, state = problem_of(CASES[0])
    run = Problem(problem.model, problem.data, problem.loss, seed)
    fused.advance(run, CASES[0].phase, state, 2000)


def two_cores(console: Console) -> None:
    """Elapsed time of two seeds against one, in processes of their own as `flattest run` has them:
    meaningful on two quiet cores only."""

    def elapsed(seeds):
        start = time.perf_counter()
        list(pool.map(train_seed, range(seeds)))
        return time.perf_counter() - start

    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        elapsed(2)
        times = [(elapsed(1), elapsed(2)) for _ in range(12)]
    alone, together = map(min, zip(*times, strict=True))
    console.print(f"Two seeds on two cores: {together / alone:.2f} times one (to reach: 1.15)")


def main() -> None:
    console = Console(width=120)
    compare(console)
    roofline(console)
    scaling(console)
    two_cores(console)


if __name__ == "__main__":
    main()
