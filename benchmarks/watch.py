"""What watching costs: a training with and without a watch, in one run.

    flattest bench watch

Two networks on 512 samples, one thread: a small CNN on images of the digits' shape, and ResNet-20
on images of CIFAR's shape, each trained twice from the same weights, in turns of ten steps:
without, and with `ft.torch.Watch` at its defaults (5 % of the time, up to 64 samples). Prints the
wall time and the processor time of both, by how much the watched one takes longer (processor time:
wall time is shared with whatever else runs), what the watch says it spent, and how many rows it
took.
Expected: at most 5 %.
"""

import sys
import time

import torch
from torch import nn

from flattest.torch import Watch  # imported before the clock runs: a second and a half, once

N, TURN = 512, 10


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


class Training:
    """A training that goes on step by step, watched or not, and its times."""

    def __init__(self, make, shape, watched: bool):
        torch.manual_seed(0)
        self.module, self.x, self.y = make(), torch.randn(N, *shape), torch.randint(0, 10, (N,))
        self.optimizer = torch.optim.SGD(self.module.parameters(), 0.05)
        self.loss, self.order = nn.CrossEntropyLoss(), torch.Generator().manual_seed(1)
        self.wall = self.processor = 0.0
        self.watch = None
        if watched:
            self.timed(self.watch_it)

    def watch_it(self) -> None:
        data = self.x, self.y
        # The watch's time is the time of this training, which stands still while the other goes on.
        self.watch = Watch(self.module, data, self.loss, optimizer=self.optimizer, clock=self.clock)

    def clock(self) -> float:
        return self.processor + time.process_time() - self.began

    def timed(self, call) -> None:
        wall, self.began = time.perf_counter(), time.process_time()
        call()
        self.processor += time.process_time() - self.began
        self.wall += time.perf_counter() - wall

    def steps(self) -> None:
        for _ in range(TURN):
            rows = torch.randperm(N, generator=self.order)[:64]
            self.optimizer.zero_grad()
            self.loss(self.module(self.x[rows]), self.y[rows]).backward()
            self.optimizer.step()
            if self.watch:
                self.watch.step()


def main(seconds: float) -> None:
    torch.set_num_threads(1)
    print("| network | steps | | wall, s | processor, s | overhead | its own clock | rows |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, (make, shape) in NETWORKS.items():
        plain, seen = (Training(make, shape, watched) for watched in (False, True))
        turns = 0
        while plain.processor < seconds:
            plain.timed(plain.steps)
            seen.timed(seen.steps)
            turns += 1
        times = f"{plain.wall:.1f} | {plain.processor:.1f}"
        print(f"| {name} | {turns * TURN} | without | {times} | | | |")
        over = seen.processor / plain.processor - 1
        own, rows = seen.watch.spent / seen.processor, len(seen.watch.rows)
        times = f"{seen.wall:.1f} | {seen.processor:.1f}"
        print(f"| | | with | {times} | {over:.1%} | {own:.1%} | {rows} |", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 25.0)
