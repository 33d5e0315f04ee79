"""Hashes of what every engine ends with, its last loss and its sharpness, to compare commits and
kinds of processors.

    python torture/bits.py STORE           a line per engine
    python torture/bits.py --half STORE    each run is stopped half way; `bits.py STORE` goes on, on
                                           another kind perhaps, which the lines say then

Another kind is had by NUMBA_CPU_NAME=x86-64 NUMBA_CPU_FEATURES= OPENBLAS_CORETYPE=Nehalem
XLA_FLAGS=--xla_cpu_max_isa=SSE4_2. The exit code is 1 where a run does not finish.
"""

import contextlib
import hashlib
import sys
from pathlib import Path
from typing import Any

import engines
import msgspec
import numpy as np

from flattest.runs.folder import StoredRun
from flattest.runs.store import Store
from flattest.training.checkpoint import Checkpoints

HALF = 20  # of the points of `engines.LOG`; a run is saved at each


def stop_half_way() -> None:
    save, saved = Checkpoints.save, [0]

    def and_stop(self: Checkpoints, *state: Any) -> None:
        """As Ctrl-C."""
        save(self, *state)
        saved[0] += 1
        if saved[0] % HALF == 0:
            raise KeyboardInterrupt

    Checkpoints.save = and_stop  # type: ignore[method-assign]


def said_of(run: StoredRun) -> str:
    """The bits of a run, its last loss and sharpness, and what it says of itself."""
    if not run.done:
        return f"{run.status} at step {run.step}"
    series, params = run.series(), run.params() or {}
    held = params or {"theta": series["theta"]}
    numbers = [np.ravel(series[name]) for name in ("train_loss", "sharpness") if name in series]
    last = " ".join(f"{v[np.isfinite(v)][-1]:.12g}" for v in numbers if np.isfinite(v).any())
    of = " then ".join(made.vectors for made in kinds(run))
    return f"{digest(held)} {last} {run.sentence} [{of}]"


def kinds(run: StoredRun) -> list[Any]:
    """Where its stretches were made."""
    return [*(stretch.provenance for stretch in run.stretches()), run.provenance()]


def digest(arrays: dict[str, np.ndarray]) -> str:
    found = hashlib.blake2b(digest_size=6)
    for name in sorted(arrays):
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()


def main(words: list[str]) -> int:
    root, half = Path(words[-1]), words[0] == "--half"
    names = engines.hastily()
    if half:
        stop_half_way()
    for name in names:
        e = engines.experiment_of(name)
        one = msgspec.structs.replace(e, quick=msgspec.structs.replace(e.quick, seeds=1))
        with contextlib.suppress(KeyboardInterrupt):
            engines.run(one, root)
        run = Store.open(root).run_of(e.quick.task, 0)
        print(f"{name:<16} {'nothing' if run is None else said_of(run)}", flush=True)
    return 0 if half or all(run.done for run in Store.open(root).runs()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
