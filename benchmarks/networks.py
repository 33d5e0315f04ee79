"""The exact trace of ResNets against BackPACK's exact diagonal and against probes.

    flattest bench networks

One thread, float32, ResNet-20 on 32 images and ResNet-18 on 8 (of CIFAR's shape, random), batch
norm in eval mode, cross-entropy over ten classes, after 20 steps of SGD on these images. Times are
processor time, the least of three rounds in which both take turns, a whole call each; the first
call of a process is not counted.
An estimator's cost is that of one probe times the probes that a relative standard error of 1e-3
takes: the variance of a probe, measured over 8, over (1e-3 · trace)²; in brackets the same with
the ends of the variance's 95 % interval (χ²). That many probes are not run.
Expected: faster than BackPACK's DiagGGNExact, and at least 100 times cheaper than the probes of
PyHessian or curvlinops. A peer that is not installed is left out.
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
from scipy import stats
from torch import nn

import flattest as ft

ROUNDS, PROBES, STEPS, ERROR = 3, 8, 20, 1e-3
torch.set_num_threads(1)
# The peers use deprecated parts of PyTorch.
warnings.simplefilter("ignore")


class Block(nn.Module):
    def __init__(self, inward: int, width: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(inward, width, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inward != width:
            across = nn.Conv2d(inward, width, 1, stride, bias=False)
            self.short = nn.Sequential(across, nn.BatchNorm2d(width))

    def forward(self, x):
        h = self.relu1(self.norm1(self.first(x)))
        return self.relu2(self.norm2(self.second(h)) + self.short(x))


def resnet(blocks: int, widths: list[int]) -> nn.Module:
    torch.manual_seed(0)
    inward, layers = widths[0], [nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)]
    layers += [nn.BatchNorm2d(inward), nn.ReLU()]
    for width in widths:
        for block in range(blocks):
            stride = 2 if block == 0 and width != widths[0] else 1
            layers.append(Block(inward, width, stride))
            inward = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inward, 10)]
    return nn.Sequential(*layers)


def trained(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    optimizer, loss = (
        torch.optim.SGD(module.parameters(), 0.05, momentum=0.9),
        nn.CrossEntropyLoss(),
    )
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(module(x), y).backward()
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return module.eval()


NETWORKS = {
    "ResNet-20, n = 32": (lambda: resnet(3, [16, 32, 64]), 32),
    "ResNet-18, n = 8": (lambda: resnet(2, [64, 128, 256, 512]), 8),
}


def backpack_trace(module, x, y) -> Callable[[], float] | None:
    try:
        import backpack
        from backpack.extensions import DiagGGNExact
    except ImportError:
        return None

    def run() -> float:
        network = backpack.extend(copy.deepcopy(module), use_converter=True)
        loss = backpack.extend(nn.CrossEntropyLoss())
        with backpack.backpack(DiagGGNExact()):
            loss(network(x), y).backward()
        return sum(p.diag_ggn_exact.sum(dtype=torch.float64).item() for p in network.parameters())

    return run


def pyhessian_probe(module, x, y) -> Callable[[], float] | None:
    try:
        import pyhessian
    except ImportError:
        return None
    network = copy.deepcopy(module)
    found = pyhessian.hessian(network, nn.CrossEntropyLoss(), data=(x, y), cuda=False)
    return lambda: float(np.mean(found.trace(maxIter=1, tol=0)))


def curvlinops_probe(module, x, y) -> Callable[[], float] | None:
    try:
        import curvlinops
    except ImportError:
        return None
    parameters = list(module.parameters())
    operator = curvlinops.HessianLinearOperator(
        module, nn.CrossEntropyLoss(), parameters, [(x, y)], check_deterministic=False
    )

    def run() -> float:
        z = torch.randint(2, (operator.shape[1],)).float() * 2 - 1
        return float(z @ (operator @ z))

    return run


def timed(run: Callable[[], float]) -> tuple[float, float]:
    start = time.process_time()
    value = run()
    return time.process_time() - start, value


def report(name: str, module: nn.Module, n: int) -> None:
    torch.manual_seed(1)
    x, y = torch.randn(n, 3, 32, 32), torch.randint(0, 10, (n,))
    module = trained(module, x, y)

    def ours() -> float:
        return ft.torch.trace(module, (x, y), nn.CrossEntropyLoss(), dtype="float32").value

    contenders = {"flattest": ours, "BackPACK DiagGGNExact": backpack_trace(module, x, y)}
    contenders = {who: run for who, run in contenders.items() if run is not None}
    ours()
    rounds = [{who: timed(run) for who, run in contenders.items()} for _ in range(ROUNDS)]
    best = {who: min(r[who] for r in rounds) for who in contenders}
    print(name)
    mine, trace = best["flattest"]
    for who, (took, value) in best.items():
        print(f"  {who:<28}{took:9.2f} s {took / mine:9.2f} ×   trace {value:.8g}", flush=True)
    for who, probe in {"PyHessian": pyhessian_probe, "curvlinops": curvlinops_probe}.items():
        if (run := probe(module, x, y)) is None:
            continue
        samples = [timed(run) for _ in range(PROBES)]
        each = min(took for took, _ in samples)
        deviation = float(np.std([value for _, value in samples], ddof=1))
        needed = (deviation / (ERROR * trace)) ** 2
        total, label = needed * each, f"{who}, {needed:.2g} probes"
        ends = [total / mine * (PROBES - 1) / q for q in stats.chi2.ppf([0.975, 0.025], PROBES - 1)]
        how = f"{each:.2f} s a probe, deviation {deviation / trace:.2g} of the trace"
        ratio = f"{total / mine:.2g} × [{ends[0]:.2g}, {ends[1]:.2g}]"
        print(f"  {label:<28}{total:9.2g} s   {ratio}   ({how})", flush=True)


def main() -> None:
    for name, (made, n) in NETWORKS.items():
        report(name, made(), n)


if __name__ == "__main__":
    main()
