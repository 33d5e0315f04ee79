"""Every page of the built site in Chromium, with the network off: on a screen and on a phone, light
and dark, nothing makes the page scroll sideways and nothing is missing; the search answers.

    python docs/site/look.py out/site [PICTURES]

needs the extra `browser` and a Chromium. With a folder it also keeps a picture of each.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, TimeoutError, sync_playwright

WIDTHS, SCHEMES = (1440, 390), ("light", "dark")
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNFOLD = "document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"


def look(root: Path, pictures: Path | None) -> list[str]:
    """What is wrong, a sentence each."""
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for width in WIDTHS:
            for scheme in SCHEMES:
                size = {"width": width, "height": 900}
                context = browser.new_context(viewport=size, color_scheme=scheme, offline=True)
                page = context.new_page()
                page.on("requestfailed", lambda asked: found.append(f"{asked.url} is missing."))
                for path in _pages(root):
                    name = f"{path.stem}-{width}-{scheme}"
                    found.extend(_seen(page, path, name, pictures))
                context.close()
        found.extend(_searched(browser.new_context(offline=True).new_page(), root))
        browser.close()
    return found


def _pages(root: Path) -> list[Path]:
    """All but the pages of sources, which are as wide as their lines, and of whole atlases."""
    folders = {"source", "atlas"}
    paths = sorted(root.rglob("*.html"))
    return [path for path in paths if not folders & set(path.relative_to(root).parts)]


def _seen(page: Page, path: Path, name: str, pictures: Path | None) -> list[str]:
    page.goto(path.as_uri())
    if pictures is not None:
        page.screenshot(path=pictures / f"{name}.png")
    page.evaluate(UNFOLD)
    excess = page.evaluate(TOO_WIDE)
    return [f"{name} is {excess} pixels too wide."] if excess > 0 else []


def _searched(page: Page, root: Path) -> list[str]:
    page.goto((root / "index.html").as_uri())
    page.click(".md-search__input")
    page.keyboard.type("memorizer", delay=80)
    try:
        page.wait_for_selector(".md-search-result__item", timeout=30_000)
    except TimeoutError:
        return ["The search does not answer."]
    return []


if __name__ == "__main__":
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    problems = look(Path(sys.argv[1]).resolve(), folder)
    print("\n".join(problems) or "Every page fits, in light and dark, and the search answers.")
    sys.exit(bool(problems))
