"""The page in Chromium: a store of 2 000 runs of 200 points, opened and used on one core.

    python benchmarks/atlas.py           about a minute; needs chromium and playwright

*Opens*: until every plot in the first view is drawn. The other lines: from a reader's act to the
frame that shows what it changed. Each twice: as the clock has it, and as processor time of the
page's own thread, which other processes on this machine do not lengthen.
"""

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from server import MEMORY, POINTS, RUNS, make_store

from flattest.report.document import render
from flattest.report.reader import gather

TIMES = 5
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
DRAWN = """() => {
    const boxes = [...document.querySelectorAll(".plot")];
    const inView = boxes.filter((box) => box.getBoundingClientRect().top < innerHeight);
    return inView.length > 0 && inView.every((box) => box.querySelector(".trace"));
}"""
SETTLE = """async (id) => {
    document.getElementById(id).scrollIntoView();
    for (let i = 0; i < 5; i++) await new Promise(requestAnimationFrame);
    await new Promise((done) => requestIdleCallback(done));
}"""
# The act, and then three frames: plots are found to be in view, are drawn, are there.
ACT = """async ([id, value]) => {
    const control = document.getElementById(id), frame = () => new Promise(requestAnimationFrame);
    const began = performance.now();
    if (control.type === "checkbox") control.checked = value; else control.value = value;
    control.dispatchEvent(new Event(control.type === "search" ? "input" : "change"));
    await frame();
    await frame();
    await frame();
    return performance.now() - began;
}"""
PANEL = "wen2023/fig1b-quick"
ACTS = {
    "one seed of 87": (f"{PANEL}-seed", None),
    "all seeds again": (f"{PANEL}-seed", "all"),
    "linear values": (f"{PANEL}-log", False),
    "search the ledger": ("claims-search", "theorem"),
    "filter the ledger": ("claims-paper", "mulayoff2021"),
}


class Clock:
    """Milliseconds that the page's thread has worked."""

    def __init__(self, page: Any) -> None:
        self.link = page.context.new_cdp_session(page)
        self.link.send("Performance.enable", {"timeDomain": "threadTicks"})

    def now(self) -> float:
        found = self.link.send("Performance.getMetrics")["metrics"]
        return next(1e3 * entry["value"] for entry in found if entry["name"] == "TaskDuration")


def visit(browser: Any, address: str) -> dict[str, tuple[float, float]]:
    """(clock, processor) times of one visit, in milliseconds."""
    page = browser.new_page(viewport={"width": 1440, "height": 1200})
    clock, began = Clock(page), time.perf_counter()
    page.goto(address)
    page.wait_for_function(DRAWN)
    found = {"opens": (1e3 * (time.perf_counter() - began), clock.now())}
    for act, (control, value) in ACTS.items():
        wanted = value if value is not None else page.locator(f"[id='{control}'] option").nth(3)
        wanted = wanted.get_attribute("value") if value is None else wanted
        page.evaluate(SETTLE, control)
        before = clock.now()
        found[act] = (page.evaluate(ACT, [control, wanted]), clock.now() - before)
    page.close()
    return found


def visits(address: str) -> list[dict[str, tuple[float, float]]]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        found = [visit(browser, address) for _ in range(TIMES)]
        browser.close()
    return found


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core, for Chromium too
    screen = Console()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        path, began = Path(folder) / "page.html", time.perf_counter()
        store = make_store(Path(folder) / "store")
        screen.print(f"{RUNS} runs × {POINTS} points: made in {time.perf_counter() - began:.0f} s")
        began = time.perf_counter()
        path.write_text(render(gather(store)), encoding="utf-8")
        took, size = time.perf_counter() - began, path.stat().st_size / 1e6
        screen.print(f"the page: {size:.2f} MB in {took:.1f} s; load {os.getloadavg()[0]:.1f}")
        try:
            found = visits(path.as_uri())
        except ImportError:
            screen.print("playwright is not installed: nothing to open the page with")
            return
    shown = Table("", "clock: median", "worst", "processor: median", "worst", title="ms")
    for act in found[0]:
        clock, processor = np.array([visit[act] for visit in found]).T
        figures = (np.median(clock), clock.max(), np.median(processor), processor.max())
        shown.add_row(act, *(f"{value:.0f}" for value in figures))
    screen.print(shown)


if __name__ == "__main__":
    main()
