"""Exact traces of a PyTorch module: ours against exact peers and against 100 Hutchinson probes.

    python benchmarks/measure.py

One thread, the reference network (d = 30, n = 100, width 500, a bias; 16 000 weights), mean square.
Times are the least of several rounds in which all take turns, a tenth of a second each. "Prepared"
leaves out what a call does before it differentiates: ours copies, checks and walks the module,
BackPACK extends a copy.
Expected: at least as fast as BackPACK, the fastest exact peer, also with the preparation; at least
20 times faster than 100 probes of each estimator. Then the time to balance 10 layers of width 512,
under 2 s. A peer that is not installed is left out; "double backward" is a loop of our own that
takes a product with ∇²L from scratch for each probe, as hessian-eigenthings does.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import copy
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

import flattest as ft
from flattest.curvature.modules import module_operator
from flattest.rescaling.units import Ends, Units, flattest

ROUNDS, PROBES, TURN = 7, 100, 0.1
torch.set_num_threads(1)
# The peers use deprecated parts of PyTorch.
warnings.simplefilter("ignore")


def reference_network() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    data = ft.xor(n=100, d=30)
    module = nn.Sequential(nn.Linear(30, 500), nn.ReLU(), nn.Linear(500, 1, bias=False)).double()
    return module, torch.tensor(data.x), torch.tensor(data.y)[:, None]


def backpack_diagonal(module, x, y) -> Callable[[], float] | None:
    try:
        import backpack
        from backpack.extensions import DiagHessian
    except ImportError:
        return None

    def run() -> float:
        # On a copy, as ours: BackPACK leaves hooks and attributes on what it extends.
        network, loss = backpack.extend(copy.deepcopy(module)), backpack.extend(nn.MSELoss())
        with backpack.backpack(DiagHessian()):
            loss(network(x), y).backward()
        return sum(p.diag_h.sum().item() for p in network.parameters())

    return run


def backpack_extended(module, x, y) -> Callable[[], float] | None:
    """The same on a module that is extended already."""
    try:
        import backpack
        from backpack.extensions import DiagHessian
    except ImportError:
        return None
    network, loss = backpack.extend(copy.deepcopy(module)), backpack.extend(nn.MSELoss())

    def run() -> float:
        with backpack.backpack(DiagHessian()):
            loss(network(x), y).backward()
        return sum(p.diag_h.sum().item() for p in network.parameters())

    return run


def flattest_prepared(module, x, y) -> Callable[[], float]:
    """The same without copy, checks and tracing, which one call does once."""
    prepared = module_operator(module, (x, y), nn.MSELoss())
    _ = prepared.structure
    return lambda: float(prepared.gauss_newton_diagonal().sum())


def curvlinops_probes(module, x, y) -> Callable[[], float] | None:
    try:
        import curvlinops
    except ImportError:
        return None
    parameters = list(module.parameters())

    def run() -> float:
        operator = curvlinops.HessianLinearOperator(module, nn.MSELoss(), parameters, [(x, y)])
        return float(curvlinops.hutchinson_trace(operator, num_matvecs=PROBES))

    return run


def pyhessian_probes(module, x, y) -> Callable[[], float] | None:
    """Its stopping rule switched off, which else ends the probes early."""
    try:
        import pyhessian
    except ImportError:
        return None
    # On a copy: it leaves gradients, with their graph, on the module.
    network = copy.deepcopy(module)

    def run() -> float:
        found = pyhessian.hessian(network, nn.MSELoss(), data=(x, y), cuda=False)
        return float(np.mean(found.trace(maxIter=PROBES, tol=0)))

    return run


def hessian_eigenthings_probes(module, x, y) -> Callable[[], float] | None:
    try:
        import hessian_eigenthings as he
    except ImportError:
        return None
    loss = he.supervised_loss(nn.MSELoss())

    def run() -> float:
        operator = he.HessianOperator(module, [(x, y)], loss)
        return he.hutchinson(operator, num_samples=PROBES, seed=0).estimate

    return run


def double_backward_probes(module, x, y) -> Callable[[], float]:
    parameters = list(module.parameters())

    def run() -> float:
        samples = []
        for _ in range(PROBES):
            gradient = torch.autograd.grad(
                nn.functional.mse_loss(module(x), y), parameters, create_graph=True
            )
            z = [torch.randint_like(p, 2) * 2 - 1 for p in parameters]
            products = torch.autograd.grad(gradient, parameters, z)
            samples.append(sum((a * b).sum().item() for a, b in zip(z, products, strict=True)))
        return float(np.mean(samples))

    return run


def seconds(contenders: dict[str, Callable[[], float]]) -> dict[str, tuple[float, float]]:
    """The least time over all rounds, and the value found."""
    best = dict.fromkeys(contenders, (np.inf, 0.0))
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            end = time.perf_counter() + TURN
            while (start := time.perf_counter()) < end:
                value = run()
                best[name] = min(best[name], (time.perf_counter() - start, value))
    return best


def balancing_seconds(layers: int = 10, width: int = 512) -> float:
    rng, units, diagonal = np.random.default_rng(0), Units(), {}
    source = np.zeros(width, int)
    for layer in range(layers):
        target = units.new(width) if layer + 1 < layers else np.zeros(width, int)
        units.ends[f"W{layer}"] = Ends(target[:, None], source[None, :])
        diagonal[f"W{layer}"] = np.exp(1.5 * rng.normal(size=(width, width)))
        source = target
    start = time.perf_counter()
    least = flattest(units, diagonal)
    took = time.perf_counter() - start
    assert abs(least.balance.gap) < 1e-9
    return took


def main() -> None:
    module, x, y = reference_network()
    found = {
        "flattest, exact": lambda: ft.torch.trace(module, (x, y), nn.MSELoss()).value,
        "BackPACK DiagHessian, exact": backpack_diagonal(module, x, y),
        "flattest, prepared": flattest_prepared(module, x, y),
        "BackPACK, prepared": backpack_extended(module, x, y),
        f"curvlinops, {PROBES} probes": curvlinops_probes(module, x, y),
        f"PyHessian, {PROBES} probes": pyhessian_probes(module, x, y),
        f"hessian-eigenthings, {PROBES} probes": hessian_eigenthings_probes(module, x, y),
        f"double backward, {PROBES} probes": double_backward_probes(module, x, y),
    }
    best = seconds({name: run for name, run in found.items() if run is not None})
    ours = best["flattest, exact"][0]
    for name, (took, value) in best.items():
        print(f"{name:<36}{1e3 * took:10.2f} ms {took / ours:8.1f} ×   trace {value:.8g}")
    print(f"{'balancing 10 layers of 512':<36}{1e3 * balancing_seconds():10.0f} ms")


if __name__ == "__main__":
    main()
