"""Every link of the built site leads somewhere on disk, and nothing is loaded from elsewhere.

python docs/site/check.py out/site
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href")}


class Page(HTMLParser):
    """The places of a page, what it links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[tuple[str, str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.places.add(value)
            elif name in ("href", "src") and value:
                self.links.append((tag, name, value))


def check(root: Path) -> list[str]:
    """What is wrong, a sentence each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in root.rglob("*.html")}
    return [
        f"{path.relative_to(root)}: {problem}"
        for path, page in pages.items()
        for link in page.links
        if (problem := _problem(path, link, pages))
    ]


def _problem(path: Path, link: tuple[str, str, str], pages: dict[Path, Page]) -> str:
    tag, name, value = link
    parts = urlsplit(value)
    if parts.scheme or parts.netloc:
        loaded = (tag, name) in LOADED and parts.scheme != "data"
        return f"loads {value}" if loaded else ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return f"{value} leads nowhere"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].places:
        return f"{value} has no such place"
    return ""


if __name__ == "__main__":
    problems = check(Path(sys.argv[1]).resolve())
    print(
        "\n".join(problems) or "Every link leads somewhere, and nothing is loaded from elsewhere."
    )
    sys.exit(bool(problems))
