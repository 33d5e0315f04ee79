"""The page's server: a store of 2 000 runs of 200 points, 50 readers, a run that writes.

    python benchmarks/server.py          about two minutes, half of it to make the store

Prints the server's response times while another process writes a run's progress to the store. The
readers are a process of their own. A reader asks as the page does, for the outline and for the run
that changes, over one connection. *Paced* readers ask once a second, each at its own time, which is
what 50 open pages do; *eager* ones ask again at once, so that 50 requests are always under way.
"""

import asyncio
import itertools
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

from flattest.experiments.experiment import Experiment
from flattest.experiments.registry import experiment, experiments
from flattest.experiments.training import Training
from flattest.report.http import HOST
from flattest.report.server import serving
from flattest.runs.store import Store
from flattest.studies.table1.experiments import ARCHITECTURES, roles
from flattest.training.run import Run

RUNS, POINTS, READERS = 2_000, 200, 50
SECONDS = 15.0
# Where files need not reach a disk: waiting for one is no part of what is measured.
MEMORY = Path("/dev/shm")


def make_store(root: Path) -> Store:
    """Table 1, and runs of every panel that trains, with noise in every digit of their curves."""
    store, rng = Store.create(root), np.random.default_rng(0)
    challenges = [roles(row)["challenge"] for row in ARCHITECTURES.values()]
    panels = [e for e in experiments().values() if isinstance(e.quick.task, Training)]
    todo = ((e, seed) for seed in itertools.count() for e in panels)
    with mock.patch("os.fsync"):
        for e, seed in itertools.product(challenges, range(2)):
            keep(store, e, seed, CHALLENGED)
        made = 0
        while made < RUNS:
            made += keep(store, *next(todo), noisy_curves(rng))
    return store


CHALLENGED = {"sharpness": 2.0, "bound": 2.0, "certified": 1.0, "test_error": 0.5}
CHALLENGED |= dict.fromkeys(("start_test_error", "start_sharpness"), np.nan)


def keep(store: Store, e: Experiment, seed: int, series: dict[str, Any]) -> bool:
    """Whether this was a new run, and not another panel's too."""
    lease = store.lease(store.add(e.quick.task, seed, f"{e.name}:quick"))
    if lease is None:
        return False
    with lease:
        lease.finish(Run(series=series))
    return True


def noisy_curves(rng: np.random.Generator) -> dict[str, np.ndarray]:
    epoch = np.geomspace(1, 1e5, POINTS).round()
    names = ("train_loss", "train_error", "test_loss", "test_error", "sharpness")
    fall = np.exp(-np.linspace(0, 8, POINTS))
    curves = {name: fall * rng.lognormal(0, 0.3, POINTS) for name in names}
    return {"epoch": epoch, "bound": np.full(POINTS, 1e-3)} | curves


def write_progress(root: Path, over: Event) -> None:
    """What `flattest run` does: a run at work reports its progress twice a second."""
    store, rng = Store.open(root), np.random.default_rng(1)
    key = store.add(experiment("wen2023/fig1a").full.task, 0, "wen2023/fig1a")
    with store.lease(key) as lease:
        for step in range(1, 10_000):
            lease.progress(step / 10_000, step, noisy_curves(rng))
            if over.wait(0.5):
                break
        lease.finish(Run(series=noisy_curves(rng)))


async def reader(
    number: int, port: int, paths: list[bytes], pause: float, until: float
) -> list[float]:
    """Response times in seconds, from the request to the answer's last byte."""
    source, sink = await asyncio.open_connection(HOST, port)
    times: list[float] = []
    try:
        await asyncio.sleep(pause * number / READERS)
        while time.perf_counter() < until:
            for path in paths:
                began = time.perf_counter()
                sink.write(b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (path, HOST.encode()))
                head = await source.readuntil(b"\r\n\r\n")
                length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
                await source.readexactly(int(length))
                times.append(time.perf_counter() - began)
            if pause:
                await asyncio.sleep(pause)
    finally:
        sink.close()
    return times


async def measure(port: int, paths: list[bytes], pause: float) -> np.ndarray:
    until = time.perf_counter() + SECONDS
    found = await asyncio.gather(*(reader(i, port, paths, pause, until) for i in range(READERS)))
    return np.sort(np.concatenate(found)) * 1e3


def times(port: int, paths: list[bytes], pause: float) -> np.ndarray:
    return asyncio.run(measure(port, paths, pause))


def serve_times(root: Path) -> Table:
    shown = Table("readers", "ask for", "answers", "median", "99 %", "worst", title="ms")
    spawned = multiprocessing.get_context("spawn")
    over = spawned.Event()
    writer = spawned.Process(target=write_progress, args=(root, over))
    with serving(root, 0) as server, ProcessPoolExecutor(1, spawned) as readers:
        writer.start()
        one = next(path for path in server.found if path.startswith("/run/")).encode()
        cases = {
            ("paced", "outline, run"): ([b"/live", one], 1.0),
            ("eager", "run"): ([one], 0.0),
            ("eager", "outline"): ([b"/live"], 0.0),
        }
        for names, (paths, pause) in cases.items():
            found = readers.submit(times, server.port, paths, pause).result()
            figures = (np.median(found), np.quantile(found, 0.99), found[-1])
            shown.add_row(*names, str(len(found)), *(f"{value:.2f}" for value in figures))
        over.set()
        writer.join()
    return shown


def main() -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        root = Path(folder) / "store"
        make_store(root)
        screen = Console()
        screen.print(f"{RUNS} runs × {POINTS} points, {READERS} readers")
        screen.print(serve_times(root), f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
