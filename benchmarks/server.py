"""The page and its server: a store of 2 000 runs of 200 points, 50 readers, a runner that writes.

    python benchmarks/server.py          a few minutes, most of it to make the store

Prints the page's size and, where Chromium and playwright are there, how long it takes to open; then
the server's response times while a run's progress is written to the store. A reader asks as the
page does, for the outline and for the run that changes, over one connection. *Paced* readers ask
once a second, each at its own time, which is what 50 open pages do; *eager* ones ask again at once.
"""

import asyncio
import itertools
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

from flattest.experiments import experiment, experiments
from flattest.experiments.training import Training
from flattest.report import gather, render
from flattest.report.server import HOST, serving
from flattest.store import Store

RUNS, POINTS, READERS = 2_000, 200, 50
SECONDS = 15.0
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


def make_store(root: Path) -> Store:
    """Runs of every panel that trains, with curves that do not compress: noise in every digit."""
    store = Store.create(root)
    panels = [e for e in experiments().values() if isinstance(e.quick.task, Training)]
    todo = ((e, seed) for seed in itertools.count() for e in panels)
    rng, made = np.random.default_rng(0), 0
    while made < RUNS:
        e, seed = next(todo)
        claim = store.claim(store.add(e.quick.task, seed, f"{e.name}:quick"))
        if claim is not None:  # else it is another panel's run too
            with claim:
                claim.finish(series=noisy_curves(rng))
            made += 1
    return store


def noisy_curves(rng: np.random.Generator) -> dict[str, np.ndarray]:
    epoch = np.geomspace(1, 1e5, POINTS).round()
    names = ("train_loss", "train_error", "test_loss", "test_error", "sharpness")
    fall = np.exp(-np.linspace(0, 8, POINTS))
    curves = {name: fall * rng.lognormal(0, 0.3, POINTS) for name in names}
    return {"epoch": epoch, "bound": np.full(POINTS, 1e-3)} | curves


def write_progress(root: Path, over: threading.Event) -> None:
    """What a runner does: a run at work tells of its progress twice a second."""
    store, rng = Store.open(root), np.random.default_rng(1)
    key = store.add(experiment("wen2023/fig1a").full.task, 0, "wen2023/fig1a")
    with store.claim(key) as claim:
        for step in range(1, 10_000):
            claim.progress(step / 10_000, step, noisy_curves(rng))
            if over.wait(0.5):
                break
        claim.finish(series=noisy_curves(rng))


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


def serve_times(root: Path) -> Table:
    shown = Table("readers", "asks for", "answers", "median", "99 %", "worst", title="ms")
    over = threading.Event()
    with serving(root, 0) as server:
        writer = threading.Thread(target=write_progress, args=(root, over))
        writer.start()
        one = next(path for path in server.answers if path.startswith("/run/")).encode()
        cases = {
            ("paced", "outline, run"): ([b"/live", one], 1.0),
            ("eager", "run"): ([one], 0.0),
            ("eager", "outline"): ([b"/live"], 0.0),
        }
        for names, (paths, pause) in cases.items():
            times = asyncio.run(measure(server.server_port, paths, pause))
            figures = (np.median(times), np.quantile(times, 0.99), times[-1])
            shown.add_row(*names, str(len(times)), *(f"{value:.2f}" for value in figures))
        over.set()
        writer.join()
    return shown


def open_times(path: Path) -> list[tuple[float, float]]:
    """Seconds until all text is there and until plots are drawn; none where there is no browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return []
    chromium = shutil.which("chromium")
    if chromium is None:
        return []
    found = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=QUIET)
        for _ in range(5):
            page = browser.new_page()
            began = time.perf_counter()
            page.goto(path.as_uri())
            page.wait_for_selector(".js-plotly-plot .trace")
            drawn = time.perf_counter() - began
            told = page.evaluate("document.body.dataset.ready")  # "after 812 ms"
            found.append((float(told.split()[1]) / 1e3, drawn))
            page.close()
        browser.close()
    return found


def main() -> None:
    screen = Console()
    with tempfile.TemporaryDirectory() as folder:
        root, path = Path(folder) / "store", Path(folder) / "page.html"
        with mock.patch("os.fsync"):
            store = make_store(root)
        began = time.perf_counter()
        path.write_text(render(gather(store)), encoding="utf-8")
        took, size = time.perf_counter() - began, path.stat().st_size / 1e6
        screen.print(f"{len(store.runs())} runs × {POINTS} points: {size:.2f} MB in {took:.1f} s")
        opened = open_times(path)
        if opened:
            text, plots = (sorted(times)[2] for times in zip(*opened, strict=True))
            screen.print(f"opens in {text:.2f} s, plots drawn after {plots:.2f} s (medians of 5)")
        screen.print(f"{READERS} readers, load {os.getloadavg()[0]:.1f}")
        screen.print(serve_times(root))


if __name__ == "__main__":
    main()
