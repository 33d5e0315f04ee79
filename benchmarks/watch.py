"""What watching costs: a training with and without a watch, in one run.

    python benchmarks/watch.py

Two networks on 512 samples, one thread: a small CNN on images of the digits' shape, and ResNet-20
on images of CIFAR's shape. Each is trained for a time without and for as many steps with
`ft.torch.Watch` at its defaults (5 % of the time, 64 samples). Prints both times, what the watch
says it spent, and its sentence.
"""

import sys
import time

import torch
from torch import nn

import flattest as ft

N = 512


def digits_cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, 10)),
    )


class Block(nn.Module):
    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        same = width == out and stride == 1
        self.skip = nn.Identity() if same else nn.Conv2d(width, out, 1, stride, bias=False)

    def forward(self, x):
        h = torch.relu(self.norms[0](self.one(x)))
        return torch.relu(self.norms[1](self.two(h)) + self.skip(x))


def resnet20() -> nn.Module:
    widths = (
        [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
    )
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(Block(*width) for width in widths),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )


NETWORKS = {"digits CNN": (digits_cnn, (1, 8, 8)), "ResNet-20": (resnet20, (3, 32, 32))}


def trained(make, shape, seconds: float, steps: int | None, watched: bool):
    """Steps and seconds of a training: for a time, or for so many steps."""
    torch.manual_seed(0)
    module, x, y = make(), torch.randn(N, *shape), torch.randint(0, 10, (N,))
    optimizer, loss = torch.optim.SGD(module.parameters(), 0.05), nn.CrossEntropyLoss()
    begin, done = time.perf_counter(), 0
    watch = ft.torch.Watch(module, (x, y), loss, optimizer=optimizer) if watched else None
    while done < steps if steps else time.perf_counter() - begin < seconds:
        rows = torch.randperm(N)[:64]
        optimizer.zero_grad()
        loss(module(x[rows]), y[rows]).backward()
        optimizer.step()
        done += 1
        if watch:
            watch.step()
    sentence = watch.close() if watch else ""
    return done, time.perf_counter() - begin, watch, sentence


def main(seconds: float) -> None:
    torch.set_num_threads(1)
    print("| network | steps | without | with | overhead | by its own clock | measurements |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, (make, shape) in NETWORKS.items():
        steps, plain, *_ = trained(make, shape, seconds, None, False)
        _, seen, watch, sentence = trained(make, shape, seconds, steps, True)
        print(
            f"| {name} | {steps} | {plain:.1f} s | {seen:.1f} s | {seen / plain - 1:.1%} "
            f"| {watch.spent / seen:.1%} | {len(watch.rows)} |"
        )
        print(f"{sentence}\n", file=sys.stderr)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 120.0)
