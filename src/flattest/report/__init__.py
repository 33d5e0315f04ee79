"""Store → one self-contained HTML page: no network, opens from disk; or the same page, live.

`gather` reads the store into plain data, `render` puts data, styles and scripts into one file,
`server` shows it while runs go on. The data travel as compressed JSON and are put on the page as
text, never as markup.
"""

from pathlib import Path

from flattest.files import write_bytes
from flattest.report.document import render
from flattest.report.reader import Page, gather
from flattest.runs.store import Store

__all__ = ["Page", "gather", "render", "write_page"]


def write_page(store: Store, path: Path) -> None:
    """Write the page of a store, all at once or not at all."""
    write_bytes(path, render(gather(store)).encode())
