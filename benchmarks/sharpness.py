"""Sharpness: ours against BackPACK, curvlinops and matfree, side by side in one run.

    python benchmarks/sharpness.py            width 500, bias, d = 30, n = 100, one thread
    python benchmarks/sharpness.py --growth   our cost as width, n and d double

Expected, in processor time: no peer is faster, while ours is exact (trace) or proven to 1e-10 (top
eigenvalue; about 0.4 and 2 ms on a quiet core); cost no worse than linear in width, n and d. Peers
that are not installed are left out. Exits with 1 where an expectation is missed.
"""

import argparse
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Callable

# One thread for everybody.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.flatten_util import ravel_pytree  # noqa: E402
from scipy.sparse.linalg import LinearOperator, eigsh  # noqa: E402

import flattest as ft  # noqa: E402

MODEL = ft.MLP(width=500, bias=True)
# What is measured where.
ROWS = [
    ("trace", "initialization"),
    ("trace", "interpolator"),
    ("top eigenvalue", "initialization"),
    ("top eigenvalue", "near interpolation"),
    ("top eigenvalue", "interpolator"),
]


def points(data: ft.Dataset) -> dict[str, dict[str, np.ndarray]]:
    """θ at initialization, at an interpolator (last layer refitted) and a step away from it."""
    theta = MODEL.init(data.d, 0)
    r = np.maximum(data.x @ theta["W1"].T + theta["b1"], 0)
    exact = theta | {"W2": np.linalg.lstsq(r, data.y, rcond=None)[0]}
    rng = np.random.default_rng(0)
    near = {k: v * (1 + 0.01 * rng.normal(size=v.shape)) for k, v in exact.items()}
    return {"initialization": theta, "near interpolation": near, "interpolator": exact}


def torch_twin(theta):
    import torch

    torch.set_num_threads(1)
    network = torch.nn.Sequential(
        torch.nn.Linear(30, 500), torch.nn.ReLU(), torch.nn.Linear(500, 1, bias=False)
    ).double()
    with torch.no_grad():
        arrays = [theta["W1"], theta["b1"], theta["W2"]]
        for p, array in zip(network.parameters(), arrays, strict=True):
            p.copy_(torch.tensor(array).reshape(p.shape))
    return network


def backpack_trace(theta, data) -> Callable[[], float]:
    import backpack
    import torch
    from backpack.extensions import DiagHessian

    x, y = torch.tensor(data.x), torch.tensor(data.y)[:, None]
    network, mse = backpack.extend(torch_twin(theta)), backpack.extend(torch.nn.MSELoss())

    def measure():
        network.zero_grad()
        with backpack.backpack(DiagHessian()):
            mse(network(x), y).backward()
        return sum(p.diag_h.sum().item() for p in network.parameters())

    return measure


def curvlinops_top(theta, data) -> Callable[[], float]:
    import torch
    from curvlinops import HessianLinearOperator

    x, y = torch.tensor(data.x), torch.tensor(data.y)[:, None]
    network = torch_twin(theta)
    H = HessianLinearOperator(
        network,
        torch.nn.MSELoss(),
        list(network.parameters()),
        [(x, y)],
        check_deterministic=False,
    )
    operator = LinearOperator(
        H.shape, matvec=lambda v: (H @ torch.tensor(v.ravel())).detach().numpy(), dtype=np.float64
    )
    start = np.random.default_rng(0).normal(size=H.shape[0])
    return lambda: eigsh(operator, k=1, which="LA", tol=1e-5, v0=start)[0][0]


def matfree_top(theta, data) -> Callable[[], float]:
    """Lanczos with the fewest products that reach 1e-8, found beforehand (which flatters it)."""
    from matfree import decomp, eig

    vector, unravel = ravel_pytree({k: jnp.asarray(v) for k, v in theta.items()})
    x, y = jnp.asarray(data.x), jnp.asarray(data.y)
    expected = ft.top_eigenvalue(MODEL, theta, data).value

    def loss(v):
        return jnp.mean((MODEL.apply(unravel(v), x, x) - y) ** 2)

    def product(v, at):
        return jax.jvp(jax.grad(loss), (at,), (v,))[1]

    start = jax.random.normal(jax.random.key(0), vector.shape)
    for products in (4, 6, 8, 12, 16, 24, 32, 48):
        lanczos = eig.eigh_partial(decomp.tridiag_sym(products, reortho="full"))
        top = jax.jit(lambda at, lanczos=lanczos: lanczos(product, start, at)[0].max())
        if abs(float(top(vector)) / expected - 1) <= 1e-8:
            break
    return lambda: float(top(vector))


PEERS: dict[str, dict[str, tuple[str, Callable]]] = {
    "trace": {"BackPACK DiagHessian": ("backpack", backpack_trace)},
    "top eigenvalue": {
        "matfree Lanczos": ("matfree", matfree_top),
        "curvlinops + eigsh": ("curvlinops", curvlinops_top),
    },
}
OURS = {"trace": ft.trace, "top eigenvalue": ft.top_eigenvalue}


def milliseconds(measures: list[Callable[[], float]], rounds: int) -> list[tuple[float, float]]:
    """Median and least processor time of a call of each; they take turns, and the first two rounds,
    which warm up, are out. All run on one thread, so that other programs do not count."""
    times: list[list[float]] = [[] for _ in measures]
    for _ in range(rounds + 2):
        for measure, spent in zip(measures, times, strict=True):
            start = time.process_time()
            measure()
            spent.append(1e3 * (time.process_time() - start))
    return [(float(np.median(spent[2:])), min(spent[2:])) for spent in times]


def peers(measure: str, theta, data) -> dict[str, Callable[[], float]]:
    """The tools that are installed."""
    return {
        tool: build(theta, data)
        for tool, (package, build) in PEERS[measure].items()
        if importlib.util.find_spec(package) is not None
    }


def compare(rounds: int) -> bool:
    """Prints one row per measure × point × tool; whether no peer was faster."""
    data = ft.xor(n=100, d=30, seed=0)
    kept = True
    print(f"{'measure':16}{'point':20}{'tool':24}{'median':>9}{'least':>9}  {'value':<20}remark")
    for measure, point in ROWS:
        theta = points(data)[point]
        result = OURS[measure](MODEL, theta, data)
        tools = {"flattest": lambda m=measure, t=theta: OURS[m](MODEL, t, data).value}
        tools |= peers(measure, theta, data)
        times = milliseconds(list(tools.values()), rounds)
        (ours, _), *others = times
        fastest = ours <= min([np.inf, *(median for median, _ in others)])
        kept &= fastest
        for (tool, call), (median, least) in zip(tools.items(), times, strict=True):
            value = call()
            remark = f"differs by {abs(value / result.value - 1):.0e}"
            if tool == "flattest":
                remark = f"{result.route}: {'fastest' if fastest else 'A PEER IS FASTER'}"
            row = f"{measure:16}{point:20}{tool:24}"
            print(f"{row}{median:9.3f}{least:9.3f}  {value:<20.12g}{remark}")
    return kept


def growth(rounds: int) -> bool:
    """Prints our milliseconds as one of width, n, d grows eightfold; whether none exceeds × 12."""
    kept = True
    for name, values in {
        "width": (500, 1000, 2000, 4000),
        "n": (100, 200, 400, 800),
        "d": (30, 60, 120, 240),
    }.items():
        times = []
        for value in values:
            setting = {"width": 500, "n": 100, "d": 30} | {name: value}
            data = ft.xor(n=setting["n"], d=setting["d"], seed=0)
            model = ft.MLP(width=setting["width"], bias=True)
            theta = model.init(data.d, 0)
            ours = [lambda m=model, t=theta, s=data: ft.trace(m, t, s).value]
            times.append(milliseconds(ours, rounds)[0][1])
        ratio = times[-1] / times[0]
        kept &= ratio <= 12
        row = "  ".join(f"{v}: {t:.3f} ms" for v, t in zip(values, times, strict=True))
        print(f"trace, {name:6}{row}   × {ratio:.1f} for × 8")
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--growth", action="store_true", help="our cost as width, n and d grow")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the peers' own
        kept = (growth if arguments.growth else compare)(arguments.rounds)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
