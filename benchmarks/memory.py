"""What a language model takes: GPT-2 of 9.9 million parameters, in a fresh process.

    python benchmarks/memory.py

6 layers, width 256, vocabulary 20 000 (tied), random weights; 8 sequences of 128, cross-entropy
over 1024 labels. The trace of the Gauss–Newton part is estimated from random combinations of
outputs to a standard error of 1 %, in float64 on one thread. Then how processor time grows with
samples and with classes, for the estimate (8 draws of each sample) and for the exact trace, on a
small network.
Expected: peak resident memory below 4 GB; time in proportion to samples for both, to classes for
the exact trace only.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import resource
import time

import torch
from torch import nn

import flattest as ft

torch.set_num_threads(1)


def language_model() -> None:
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        print("transformers is not installed")
        return
    torch.manual_seed(0)
    config = GPT2Config(n_layer=6, n_embd=256, n_head=8, vocab_size=20_000, n_positions=128)
    module = GPT2LMHeadModel(config).eval()
    ids = torch.randint(0, 20_000, (8, 129))
    data = {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}
    start = time.process_time()
    found = ft.torch.gauss_newton_trace(module, data, nn.CrossEntropyLoss(), rtol=0.01)
    took = time.process_time() - start
    parameters = sum(p.numel() for p in module.parameters())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"GPT-2, {parameters / 1e6:.1f} M parameters: {found}")
    print(f"  {took:.0f} s of processor time, peak resident memory {peak:.2f} GB", flush=True)


def seconds(samples: int, classes: int, rtol: float) -> float:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, classes))
    data = torch.randn(samples, 64), torch.randint(0, classes, (samples,))

    def once() -> float:
        start = time.process_time()
        # A standard error that 8 draws do not reach.
        ft.torch.gauss_newton_trace(module, data, nn.CrossEntropyLoss(), rtol=rtol, most_draws=8)
        return time.process_time() - start

    return min(once() for _ in range(3))


def growth() -> None:
    print(f"{'samples':>8}{'classes':>8}{'estimate, ms':>14}{'exact, ms':>12}")
    for samples, classes in [(256, 50), (512, 50), (1024, 50), (256, 100), (256, 200)]:
        times = [1e3 * seconds(samples, classes, rtol) for rtol in (1e-9, 0.0)]
        print(f"{samples:>8}{classes:>8}{times[0]:>14.1f}{times[1]:>12.1f}", flush=True)


if __name__ == "__main__":
    language_model()
    growth()
