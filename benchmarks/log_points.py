"""What share of a run's processor time its log points take, at the papers' setting and when quick.

    flattest bench log_points
    python benchmarks/log_points.py fig6b fig9a     some panels

1-SAM on xor at d = 30, n = 100, width 500 with a bias, 10 000 test points: 20 000 epochs with the
default log; then the quick variant of every panel of wen2023, one seed each. Kernels are compiled
before. *Logging* is all that is evaluated at the points of the log, in milliseconds per point.
Expected: at most 10 % of either.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
from unittest import mock

import msgspec
from rich.console import Console
from rich.table import Table

import flattest as ft
from flattest.experiments.training import Training
from flattest.papers.wen2023.experiments import EXPERIMENTS
from flattest.training import engines
from flattest.training.metrics import Metrics


class Timed:
    """A function that counts its calls and the processor time that they take."""

    def __init__(self, function):
        self.function, self.calls, self.seconds = function, 0, 0.0

    def __call__(self, *arguments):
        began = time.thread_time()
        try:
            return self.function(*arguments)
        finally:
            self.calls, self.seconds = self.calls + 1, self.seconds + time.thread_time() - began


def shares(task: Training, phases) -> tuple[int, float, float]:
    """Points of the log, seconds of logging, and of the engine."""
    log, engine = Timed(Metrics.at), Timed(engines.advance)
    with (
        mock.patch.object(Metrics, "at", lambda *arguments: log(*arguments)),
        mock.patch.object(engines, "advance", engine),
    ):
        data = task.distribution.draw(task.n, 0)
        ft.train(task.model, data, phases, loss=task.loss, log=task.log, test_size=task.test_size)
    return log.calls, log.seconds, engine.seconds


def shortened(phases):
    return [msgspec.structs.replace(phase, epochs=min(phase.epochs, 20)) for phase in phases]


def main(names: list[str]) -> None:
    panels = {e.name: e.quick.task for e in EXPERIMENTS if isinstance(e.quick.task, Training)}
    long = (ft.sam(0.01, 0.05, epochs=20_000),)
    paper = Training(distribution=ft.Xor(30), n=100, model=ft.MLP(500, bias=True), phases=long)
    tasks = {name.removeprefix("wen2023/"): task for name, task in panels.items()}
    tasks = {name: tasks[name] for name in names} or {"20 000 epochs": paper, **tasks}
    table = Table("run", "epochs", "points", "logging, ms", "engine, s", "share")
    for name, task in tasks.items():
        shares(task, shortened(task.phases))
        points, log, engine = shares(task, task.phases)
        epochs = str(sum(phase.epochs for phase in task.phases))
        cells = f"{1e3 * log / points:.2f}", f"{engine:.2f}", f"{log / (log + engine):.1%}"
        table.add_row(name, epochs, str(points), *cells)
    Console(width=100).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
