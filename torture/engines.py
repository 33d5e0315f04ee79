"""Small runs of every engine, and a process that does them, to be killed.

    python torture/engines.py NAME STORE WORKERS [SCHEDULER]

Runs save themselves at every logged epoch, and rest after it: there is always something to lose.
"""

import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import flattest as ft
from flattest.errors import FlattestError
from flattest.experiments.expectations import AtMost
from flattest.experiments.experiment import Experiment, Task, Variant
from flattest.experiments.training import Training
from flattest.papers.mulayoff2021.experiments import StepSizeSweep
from flattest.problem.models import OwnModel
from flattest.runs.run import run_experiments
from flattest.runs.store import Store
from flattest.runs.user_file import Reference
from flattest.training.checkpoint import Checkpoints

SEEDS = 2
REST = 0.01  # seconds after every saved state
LOG = ft.Log(points=40, snapshots=3)


def hastily() -> dict[str, Task]:
    """Have runs saved at every occasion; returns the tasks, which keeps what they are made of."""
    save = Checkpoints.save

    def and_rest(self: Checkpoints, *state: Any) -> None:
        save(self, *state)
        time.sleep(REST)

    Checkpoints.save = and_rest  # type: ignore[method-assign]
    Checkpoints.is_due = property(lambda self: True)  # type: ignore[method-assign,assignment]
    return tasks()


def tasks() -> dict[str, Task]:
    """One for each kernel and engine."""
    sam = (ft.sam(0.02, 0.1, epochs=3000, label_noise=0.1, warmup=900),)
    found: dict[str, Task] = {
        "single samples": training(ft.MLP(8, bias=True), sam),
        "leaky": training(ft.MLP(8, activation="leaky_relu:0.1"), sam),
        "batches": training(ft.MLP(8), (ft.sam(0.02, 0.1, 5, micro_batch=2, epochs=3000),)),
        "Sim-LN": training(ft.MLP(8, bias=True, norm="sim_ln"), sam),
        "Sim-BN": training(ft.MLP(8, bias=True, norm="sim_bn"), sam),
        "three layers": training(ft.MLP(8, depth=3, bias=True), sam),
        "JAX": training(ft.MLP(8, bias=True), (ft.momentum(0.005, rho=0.1, epochs=60),)),
        "flow": training(
            ft.MLP(20, bias=True),
            (ft.gd(0.05, epochs=5000, stop_loss=1e-8), ft.flow(0.2, epochs=8)),
            dtype="float64",
        ),
        "univariate": StepSizeSweep(width=20, count=8, warmup=5_000, steps=20_000, watched=1_000),
    }
    if importlib.util.find_spec("torch") is not None:
        own = OwnModel.of(ft.pytorch(module))
        found["PyTorch"] = training(own, (ft.sgd(0.02, batch=4, epochs=60),))
    return found


def training(model: Any, phases: tuple[Any, ...], **settings: Any) -> Training:
    return Training(ft.Xor(6), 12, model, phases, log=LOG, test_size=16, **settings)


def module(d: int) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(d, 6), nn.ReLU(), nn.Linear(6, 1))


def experiment_of(name: str) -> Experiment:
    """Of which nothing is expected but that it ends."""
    variant = Variant(tasks()[name], SEEDS, (AtMost(series="train_loss", value=1e9),))
    return Experiment(
        name=f"torture/{name}", figure="none", statement="It ends.", quick=variant, full=variant
    )


def run(e: Experiment, root: Path, workers: int = 1, scheduler: str | None = None) -> None:
    made = Reference(Path(__file__), "hastily")
    run_experiments([e], "quick", Store.create(root), None, workers, scheduler, preload=made)


def main(name: str, root: str, workers: str, scheduler: str | None = None) -> int:
    kept = hastily()
    assert kept
    try:
        run(experiment_of(name), Path(root), int(workers), scheduler)
    except FlattestError as error:
        print(f"flattest: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
