"""The pictures of docs/atlas.md: the page of a store, looked at with Chromium.

flattest table1
flattest run mulayoff2021/sweep vardhan2026/fig3-quadratic
flattest sweep examples/own_lab.py:asam --over n=20,40,80,160 --over d=5,10,20 --seeds 1
flattest judge examples/own_lab.py:digits
flattest judge src/flattest/examples/lab.py:setup
flattest judge examples/own_lab.py:asam
python docs/atlas/pictures.py out/store
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from flattest.report.document import write_page
from flattest.runs.store import Store

HERE = Path(__file__).parent
SETTLED = """() => document.body.dataset.ready && [...document.querySelectorAll(".plot")]
    .map((box) => [box, box.getBoundingClientRect()])
    .filter(([, {top, bottom}]) => top < innerHeight && bottom > 0)
    .every(([box]) => box.querySelector(".trace, .cell"))"""
OVER = ("judge/asam-bias-algorithm seed=0", "table1/bias-algorithm seed=0")
DIAGRAM = "sweep/asam-bias-n-d"
SWEEP, SCATTER = "mulayoff2021/sweep-quick", "vardhan2026/fig3-quadratic-quick"


def settle(page: Page) -> None:
    page.wait_for_function(SETTLED)
    page.wait_for_timeout(300)


def part(page: Page, id: str, name: str) -> None:
    """A picture of one section, where the page has it."""
    found = page.locator(f"[id='{id}']")
    if found.count():
        found.evaluate("(element) => element.scrollIntoView()")
        settle(page)
        found.screenshot(path=HERE / name)


def over_each_other(page: Page) -> None:
    for words in OVER:
        page.locator("#runs-search").fill(words)
        page.locator("#runs tbody input").first.check()
    page.locator("#runs-search").fill("judge/")
    part(page, "runs", "runs-1440.png")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "page.html"
        write_page(Store.open(Path(sys.argv[1])), path)
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )

        def opened(width: int, height: int = 1500, scheme: str = "light") -> Page:
            view = {"width": width, "height": height}
            page = browser.new_context(viewport=view, color_scheme=scheme).new_page()
            page.goto(path.as_uri())
            settle(page)
            return page

        for width in (390, 1024, 1440):
            opened(width).screenshot(path=HERE / f"own-{width}.png")
        opened(1024, 1200, "dark").screenshot(path=HERE / "dark-1024.png")
        part(opened(390), DIAGRAM, "diagram-390.png")
        wide = opened(1440)
        part(wide, "table1-front", "front-1440.png")
        part(wide, DIAGRAM, "diagram-1440.png")
        part(wide, "inside", "network-1440.png")
        part(opened(1440, 1200, "dark"), "inside", "network-dark-1440.png")
        over_each_other(wide)
        part(wide, SCATTER, "correlation-1440.png")
        if wide.locator(f"[id='{SWEEP}-step']").count():
            wide.locator(f"[id='{SWEEP}-step']").fill("9")
        part(wide, SWEEP, "step-sizes-1440.png")
        small = opened(390)
        small.get_by_label("misprints only").check()
        small.locator("#claims-paper").select_option("mulayoff2021")
        small.locator("#claims-unchecked summary").click()
        small.locator("#claims").evaluate("(element) => element.scrollIntoView()")
        small.screenshot(path=HERE / "claims-390.png")
        browser.close()


if __name__ == "__main__":
    main()
