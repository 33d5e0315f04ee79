"""What measuring takes at its peak, each part in a fresh process, and how its time grows.

    flattest bench memory

GPT-2: 6 layers, width 256, vocabulary 20 000 (tied), 9.9 million random weights; 8 sequences of
128, cross-entropy over 1024 labels. The trace of its Gauss–Newton part from random combinations of
outputs, to a standard error of 1 %, and four products with ∇²L as Hutchinson's estimate takes them:
their scatter says how many 1 % would take. A loader: 50 000 samples of 4096 numbers (0.8 GB, 1.6
GB in float64), the exact trace of a small ReLU network. A ReLU network of 9.7 million weights:
λ_max by Lanczos, and Hutchinson. All in float64 on one thread; memory is the process's peak, with
PyTorch and flattest imported. Then how processor time and memory grow with samples and with
classes, for the estimate (8 draws of each sample) and for the exact trace, on a small network, each
in a fresh process; memory is what the peak rises by (`python benchmarks/memory.py growth` for these
alone).
Expected: peaks below 4 GB, the loader's below the size of its data; time in proportion to samples
for both, to classes for the exact trace only; memory at most in proportion, and bounded.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import resource
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import flattest as ft

torch.set_num_threads(1)
LOSS = nn.CrossEntropyLoss()


def language_model():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=6, n_embd=256, n_head=8, vocab_size=20_000, n_positions=128)
    module = GPT2LMHeadModel(config).eval()
    ids = torch.randint(0, 20_000, (8, 129))
    return module, {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}


def large_network():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2200, 2200), nn.ReLU(), nn.Linear(2200, 2200), nn.ReLU())
    module.append(nn.Linear(2200, 10))
    return module, (torch.randn(16, 2200), torch.randint(0, 10, (16,)))


class Rows(torch.utils.data.Dataset):
    """Samples that are made when they are asked for."""

    base = torch.linspace(-1, 1, 8191).sin()

    def __len__(self):
        return 50_000

    def __getitem__(self, i):
        return self.base[i % 4095 : i % 4095 + 4096] * (1 + i % 7), i % 10


def loader():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4096, 16), nn.ReLU(), nn.Linear(16, 10))
    return module, torch.utils.data.DataLoader(Rows(), 500, shuffle=True)


PARTS: dict[str, Callable] = {
    "GPT-2, Gauss-Newton trace": lambda: ft.torch.gauss_newton_trace(*language_model(), LOSS),
    "GPT-2, four products": lambda: ft.torch.hutchinson(*language_model(), LOSS, most_products=4),
    "0.8 GB from a loader, trace": lambda: ft.torch.trace(*loader(), LOSS),
    "9.7 M weights, top eigenvalue": lambda: ft.torch.top_eigenvalue(
        *large_network(), LOSS, tol=1e-3
    ),
    "9.7 M weights, Hutchinson": lambda: ft.torch.hutchinson(
        *large_network(), LOSS, most_products=16
    ),
}


def part(name: str) -> None:
    start = time.process_time()
    found = PARTS[name]()
    took = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    error = f" ± {found.stderr:.2g}" if found.stderr else ""
    print(f"{name}: {found.value:.5g}{error} ({found.route})")
    print(f"  {took:.0f} s of processor time, peak resident memory {peak:.2f} GB", flush=True)


def once(samples: int, classes: int, rtol: float) -> None:
    """Prints milliseconds of processor time, the least of three, and by how many MB the peak
    rose."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, classes))
    data = torch.randn(samples, 64), torch.randint(0, classes, (samples,))

    def seconds() -> float:
        start = time.process_time()
        # A standard error that 8 draws do not reach.
        ft.torch.gauss_newton_trace(module, data, LOSS, rtol=rtol, most_draws=8)
        return time.process_time() - start

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = 1e3 * min(seconds() for _ in range(3))
    rise = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{took:>10.1f}{rise:>8.1f}")


SIZES = [(256, 50), (512, 50), (1024, 50), (8192, 50), (256, 100), (256, 200)]


def growth() -> None:
    print(f"{'samples':>8}{'classes':>8}{'estimate:':>12} ms{'MB':>8}{'exact:':>9} ms{'MB':>8}")
    for size in SIZES:
        numbers = [str(size[0]), str(size[1])]
        command = [sys.executable, "-W", "ignore", __file__, "once", *numbers]
        runs = [
            subprocess.run([*command, r], capture_output=True, check=True) for r in ("1e-9", "0")
        ]
        found = [run.stdout.decode().rstrip() for run in runs]
        print(f"{size[0]:>8}{size[1]:>8}     {'  '.join(found)}", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["once"]:
        once(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
        return
    if sys.argv[1:] == ["growth"]:
        growth()
        return
    if len(sys.argv) > 1:
        part(sys.argv[1])
        return
    for name in PARTS:
        found = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, name], check=False, capture_output=True
        )
        said = found.stdout.decode() or found.stderr.decode().strip().splitlines()[-1]
        print(said.rstrip(), flush=True)
    growth()


if __name__ == "__main__":
    main()
