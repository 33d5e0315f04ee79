"""Hashes of what every engine ends with, its last loss and its sharpness, to compare commits and
kinds of processors.

python torture/bits.py                      a line per engine
NUMBA_CPU_NAME=x86-64 NUMBA_CPU_FEATURES= OPENBLAS_CORETYPE=Nehalem python torture/bits.py
python torture/bits.py --until 0.5 FOLDER   stop half way, and save
python torture/bits.py --resume FOLDER      go on from there, on another kind perhaps
"""

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
from engines import tasks

import flattest as ft
from flattest.experiments.training import Training
from flattest.training.checkpoint import Checkpoints


class Halfway(KeyboardInterrupt):
    """Raised by what stands for a user's Ctrl-C."""


def stop_at(share: float):
    def progress(seen: Any) -> None:
        if seen.fraction >= share and seen.fraction < 1:
            raise Halfway

    return progress


def bits_of(name: str, task: Any, folder: Path | None, until: float | None) -> str:
    if not isinstance(task, Training):
        found = task.compute(0)
        mean = np.nanmean(found["sharpness"])
        return f"{digest({'theta': np.asarray(found['theta'])})} {mean:.12g}"
    data = task.distribution.draw(task.n, 0)
    place = None if folder is None else folder / name.replace(" ", "-")
    try:
        run = ft.train(
            task.model,
            data,
            task.phases,
            seed=0,
            loss=task.loss,
            dtype=task.dtype,
            log=task.log,
            test_size=task.test_size,
            checkpoint=place,
            checkpoint_seconds=0.0,
            progress=None if until is None else stop_at(until),
            progress_seconds=0.0,
        )
    except Halfway:
        return "stopped"
    last = (run.series[name][-1] for name in ("train_loss", "sharpness"))
    return " ".join([digest(run.params), *(f"{value:.12g}" for value in last)])


def digest(arrays: dict[str, np.ndarray]) -> str:
    found = hashlib.blake2b(digest_size=6)
    for name in sorted(arrays):
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


def main(words: list[str]) -> None:
    until = float(words[1]) if words[:1] == ["--until"] else None
    folder = Path(words[-1]) if words else None
    Checkpoints.is_due = property(lambda self: True)  # type: ignore[method-assign,assignment]
    for name, task in tasks().items():
        print(f"{name:<16} {bits_of(name, task, folder, until)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
