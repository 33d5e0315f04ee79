"""Store → one self-contained HTML page: no network, opens from disk.

`gather` reads the store into plain data, `render` puts data, styles and scripts into one file. The
data travel as compressed JSON and are put on the page as text, never as markup.
"""

import base64
import gzip
from importlib import resources
from pathlib import Path

import msgspec
import plotly.offline

from flattest.report.gather import Page, gather
from flattest.store import Store, write_bytes

__all__ = ["Page", "gather", "render", "write_page"]


def write_page(store: Store, path: Path) -> None:
    """Write the page of a store, all at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, render(gather(store)).encode())


def render(page: Page) -> str:
    """The page as one HTML document."""
    parts = {
        "style": _asset("page.css"),
        "plotly": plotly.offline.get_plotlyjs(),
        "script": _asset("page.js"),
        "data": packed(page),
    }
    document = _asset("page.html")
    for name, text in parts.items():
        # A literal </script> inside a script would end it.
        safe = text.replace("</script", "<\\/script") if name != "style" else text
        document = document.replace(f"/*{{{name}}}*/", safe)
    return document


def packed(page: Page) -> str:
    """Compressed JSON as base64: letters and digits only, whatever the store contains."""
    data = gzip.compress(msgspec.json.encode(page), mtime=0)
    return base64.b64encode(data).decode()


def _asset(name: str) -> str:
    return resources.files("flattest.report").joinpath(name).read_text(encoding="utf-8")
