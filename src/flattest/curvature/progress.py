"""What takes long, shown as bars on a terminal, piece by piece; nothing anywhere else.

A bar appears when what it belongs to has taken a second. Bars of parts stand below that of the
whole: a pass over the samples below the products that each take one.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

DELAY, PAUSE = 1.0, 0.1  # seconds: before the first bar, and between two looks
Advance = Callable[..., None]


@contextmanager
def progress(what: str, total: float | None = None) -> Iterator[Advance]:
    """Inside, the function that is given is told of what is done: one piece, or so many."""
    if not sys.stderr.isatty() or threading.current_thread() is not threading.main_thread():
        yield lambda pieces=1: None
        return
    bar = _BOARD.add(what, total)
    try:
        yield partial(_BOARD.advance, bar)
    finally:
        _BOARD.remove(bar)


class _Board:
    """All bars of this process, drawn by one `rich.Progress` that is made when it is needed. It is
    drawn only from `advance`, so that a bar left behind by an error does not draw over it."""

    def __init__(self) -> None:
        self.bars: list[dict[str, Any]] = []
        self.drawn: Any = None
        self.next = 0.0

    def add(self, what: str, total: float | None) -> dict[str, Any]:
        if not self.bars:
            self.next = time.monotonic() + DELAY
        bar = {"what": what, "total": total, "done": 0.0, "task": None}
        self.bars.append(bar)
        return bar

    def advance(self, bar: dict[str, Any], pieces: float = 1) -> None:
        bar["done"] += pieces
        if time.monotonic() >= self.next:
            self.next = time.monotonic() + PAUSE
            self._draw()

    def remove(self, bar: dict[str, Any]) -> None:
        self.bars = [other for other in self.bars if other is not bar]
        if self.drawn is not None and bar["task"] is not None:
            self.drawn.remove_task(bar["task"])
        if not self.bars and self.drawn is not None:
            self.drawn.stop()
            self.drawn = None

    def _draw(self) -> None:
        if self.drawn is None:
            self.drawn = _bars()
            self.drawn.start()
        for bar in self.bars:
            if bar["task"] is None:
                bar["task"] = self.drawn.add_task(bar["what"], total=bar["total"])
            self.drawn.update(bar["task"], completed=bar["done"])
        self.drawn.refresh()


def _bars() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    console = Console(stderr=True, force_terminal=True)
    return Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, auto_refresh=False
    )


_BOARD = _Board()
