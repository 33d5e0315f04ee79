"""Show the page of the store live in a browser, on this machine only, while runs go on.

The page is that of `flattest report`. It follows the runs as they progress, and finds its way back
when the server is started again. Nothing can be changed through it.

Examples:

    flattest serve                 http://127.0.0.1:8421/
    flattest serve --port 0        any free port
"""

import contextlib
import threading
from typing import Annotated

import tyro

from flattest.cli._options import DEFAULT_STORE, StoreFolder, console


def command(
    folder: StoreFolder = DEFAULT_STORE,
    port: Annotated[
        int, tyro.conf.arg(help="The port to listen on; 0 for any that is free.")
    ] = 8421,
) -> None:
    from flattest.report.server import serving

    with serving(folder, port) as server:
        console().print(f"The page: {server.address} (Ctrl-C ends it)")
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
