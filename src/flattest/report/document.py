"""The page as one HTML document that needs no other file and no other host."""

import base64
import functools
import gzip
import hashlib
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from flattest import palette
from flattest.experiments.registry import papers
from flattest.files import write_bytes
from flattest.report.reader import Page, gather
from flattest.runs.store import Store

PageData = dict[str, Any]  # a `Page` as the browser gets it
SCRIPTS = (
    "elements.js",
    "files.js",
    "axes.js",
    "drawing.js",
    "figures.js",
    "heat.js",
    "front.js",
    "panels.js",
    "folds.js",
    "own.js",
    "network.js",
    "runs.js",
    "ledger.js",
    "main.js",
)


MUCH = 20_000_000  # bytes of data that are compressed quickly rather than well


def write_page(store: Store, path: Path) -> None:
    """Write the page of a store, all at once or not at all."""
    write_bytes(path, render(gather(store)).encode())


def render(page: Page | PageData, live: bool = False) -> str:
    """The page; where it is `live`, it asks the server that sent it what has changed."""
    parts = {
        "policy": policy(live),
        "live": "yes" if live else "no",
        "style": style(),
        "script": script(),
        "data": _packed(msgspec.json.encode(page)),
    }
    document = _asset("page.html")
    for name, text in parts.items():
        document = document.replace(f"/*{{{name}}}*/", text)
    return document


def policy(live: bool) -> str:
    """What the page may do: use its own script and style, and where live ask its own server."""
    server = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {_hash(script())}; style-src {_hash(style())}; "
        f"img-src data:; connect-src {server}; base-uri 'none'; form-action 'none'"
    )


@functools.cache
def script() -> str:
    """The page's scripts as one, those of papers last, each with names of its own.

    A literal </script> inside it would end it.
    """
    found = (paper.folder / "page.js" for paper in papers().values())
    texts = (path.read_text(encoding="utf-8") for path in found if path.is_file())
    scripts = [*map(_asset, SCRIPTS), *(f"(() => {{\n{text}\n}})();" for text in texts)]
    return "\n".join(scripts).replace("</script", "<\\/script")


@functools.cache
def style() -> str:
    """The page's style, which has the palette as variables."""
    colours = {name.lower(): value for name, value in vars(palette).items() if name.isupper()}
    variables = "".join(f"--palette-{name}: {value}; " for name, value in colours.items())
    return f":root {{ {variables}}}\n{_asset('page.css')}"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _packed(data: bytes) -> str:
    """Compressed, as base64: letters and digits only, whatever the store contains."""
    level = 6 if len(data) < MUCH else 2
    return base64.b64encode(gzip.compress(data, compresslevel=level, mtime=0)).decode()


def _asset(name: str) -> str:
    return resources.files("flattest.report").joinpath("page", name).read_text(encoding="utf-8")
