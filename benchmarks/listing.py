"""`flattest status` and `flattest report` of stores of many runs, each in a fresh process.

    python benchmarks/listing.py [RUNS …]     20 000 and 100 000 by default, some minutes

The runs are those of every panel that trains, with seeds from 0 on, each with 200 points of noisy
curves; a hundredth of the folders is broken. *First*: the store has no index yet. Processor time in
seconds, the clock's beside it, and the largest resident memory.
Expected at 20 000 runs: `status` below 2 s, `report` below 10 s.
"""

import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table
from server import MEMORY, noisy_curves

from flattest.experiments.registry import experiments
from flattest.experiments.training import Training
from flattest.files import digest, write_sealed, write_series
from flattest.runs.folder import Record, Spec
from flattest.runs.index import SCHEMA
from flattest.runs.provenance import provenance
from flattest.training.keys import run_key
from flattest.training.state import ENGINE_VERSION

DIFFERENT = 50  # curves, which runs share


def asked() -> Iterator[Spec]:
    """Runs that experiments may ask for, one of each key."""
    panels = [e for e in experiments().values() if isinstance(e.quick.task, Training)]
    known = set()
    for seed, e in ((seed, e) for seed in itertools.count() for e in panels):
        key = run_key(e.quick.task, seed)
        if key not in known:
            known.add(key)
            task = msgspec.Raw(msgspec.json.encode(e.quick.task))
            yield Spec(SCHEMA, key, f"{e.name}:quick", seed, ENGINE_VERSION, task)


def make_folders(root: Path, count: int) -> None:
    """The folders of finished runs, without an index; every hundredth has lost half its record."""
    rng, made = np.random.default_rng(0), provenance()
    curves = []
    for number in range(DIFFERENT):
        path = root / f"curves-{number}.npz"
        write_series(path, noisy_curves(rng))
        curves.append(path.read_bytes())
        path.unlink()
    for number, spec in enumerate(itertools.islice(asked(), count)):
        folder, series = root / "runs" / spec.key, curves[number % DIFFERENT]
        write_sealed(folder / "spec.json", spec)
        (folder / "series.npz").write_bytes(series)
        record = Record(
            status="finished",
            sentence="20000 epochs, training loss 1e-9.",
            progress=1.0,
            created=1e9,
            sharpness=22.3,
            test_error=0.25,
            provenance=made,
            files={"series.npz": len(series)},
            digests={"series.npz": digest(series)},
        )
        write_sealed(folder / "record.json", record)
        if number % 100 == 99:
            os.truncate(folder / "record.json", 100)


def taken(*arguments: str) -> tuple[float, float, float]:
    """Processor seconds, the clock's, and megabytes of a command in a process of its own."""
    code = (
        "import resource, sys; from flattest.cli._dispatch import main; code = main(sys.argv[1:])"
    )
    code += "; print(resource.getrusage(0).ru_maxrss / 1024, file=sys.stderr); sys.exit(code)"
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return busy, time.monotonic() - began, float(done.stderr.split()[-1])


def main(counts: list[int]) -> None:
    table = Table("runs", "command", "processor, s", "clock, s", "memory, MB")
    for count in counts:
        with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as made:
            root = Path(made) / "store"
            (root / "runs").mkdir(parents=True)
            with mock.patch("os.fsync"):
                make_folders(root, count)
            page = str(Path(made) / "page.html")
            commands = {
                "status, first": ("status", "--store", str(root)),
                "status": ("status", "--store", str(root)),
                "report, first": ("report", "--store", str(root), "--page", page),
                "report": ("report", "--store", str(root), "--page", page),
            }
            for name, arguments in commands.items():
                busy, clock, memory = taken(*arguments)
                table.add_row(f"{count:,}", name, f"{busy:.1f}", f"{clock:.1f}", f"{memory:.0f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main([int(count) for count in sys.argv[1:]] or [20_000, 100_000])
