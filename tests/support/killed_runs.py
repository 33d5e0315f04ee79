"""Twenty runs in one process, in both engines, for `test_checkpoint` to kill."""

import sys
import threading
import time
from pathlib import Path

import numpy as np

import flattest as ft
from flattest.training.log import Log
from flattest.training.run import Run
from flattest.training.train import train

COUNT = 20
DATA = ft.xor(n=8, d=4, seed=0)
PHASES = (
    ft.sam(0.02, 0.1, epochs=600, label_noise=0.1, warmup=900),
    ft.sgd(0.01, epochs=600, weight_decay=0.01),
)
LOG = Log(epochs=tuple(range(0, 1200, 30)), measures=("norms",))


def run(number: int, folder: Path | None) -> Run:
    """Run `number`, saved at every logged epoch where there is a folder."""
    return train(
        ft.MLP(width=6, bias=True, output_bias=True),
        DATA,
        PHASES,
        seed=number,
        backend="fused" if number % 2 else "jax",
        log=LOG,
        checkpoint=folder,
        checkpoint_seconds=0.0,
    )


def _start_late(number: int, folder: Path) -> None:
    time.sleep(np.random.default_rng(number).uniform(0, 0.5))
    run(number, folder)


if __name__ == "__main__":
    base = Path(sys.argv[1])
    for i in range(2):
        run(i, None)  # compiles once, for all threads
    for i in range(COUNT):
        threading.Thread(target=_start_late, args=(i, base / str(i))).start()
