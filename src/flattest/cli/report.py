"""Write everything in the store as one self-contained HTML page.

The page needs no network and no server: it opens from disk, with Table 1 as these runs have it,
every panel that has runs, and what was expected of it.

Examples:

    flattest report                        out/report.html
    flattest report --page ~/atlas.html    somewhere else
"""

from pathlib import Path

from flattest.cli._options import DEFAULT_STORE, Page, StoreFolder, console
from flattest.runs.store import Store


def command(folder: StoreFolder = DEFAULT_STORE, page: Page = Path("out/report.html")) -> None:
    from flattest.report.document import write_page

    write_page(Store.open(folder), page)
    console().print(f"The page: {page.absolute().as_uri()}")
