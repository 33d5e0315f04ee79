"""Progress bars of the jobs at work, read from the store."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from flattest.experiments.training import Training
from flattest.files import StoreError
from flattest.runs.index import Row
from flattest.runs.plan import Job
from flattest.runs.store import Store

POLL = 0.5  # seconds between two looks at the store
# What is left is estimated once a bar has moved for so long, and by so much: the first steps of a
# run wait for the compiler, and say nothing of the others.
SECONDS_SEEN, SHARE_SEEN = 3.0, 0.02


@contextlib.contextmanager
def shown(store: Store, jobs: Sequence[Job], console: Console | None) -> Iterator[None]:
    """Progress bars, one for all jobs and one for each at work, wherever they are worked on.

    Where there is no terminal, only a line for each that is over. They show what the store says,
    so runs that another process has in hand move too.
    """
    console = console or Console(stderr=True)
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:5.1f} %"),
        TimeElapsedColumn(),
        Remaining(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    end = threading.Event()
    board = Board(store, {job.key: job for job in jobs}, bars)
    watcher = threading.Thread(target=board.watch, args=(end,), daemon=True)
    with bars:
        watcher.start()
        try:
            yield
        finally:
            end.set()
            watcher.join()


class Remaining(ProgressColumn):
    """What is left to wait, by how fast the bar has moved since it first moved."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.clock = clock
        self.began: dict[int, tuple[float, float]] = {}

    def render(self, task: Task) -> Text:
        if task.completed == 0:
            return Text(task.fields.get("begins", ""), style="dim")
        now, share = self.clock(), task.percentage / 100
        since, before = self.began.setdefault(task.id, (now, share))
        seconds, moved = now - since, share - before
        if task.finished or seconds < SECONDS_SEEN or moved < SHARE_SEEN:
            return Text("")
        left = timedelta(seconds=round(seconds * (1 - share) / moved))
        return Text(f"{left} left", style="progress.remaining")


class Board:
    """The bars of the jobs at work, and a line for each that is over."""

    def __init__(self, store: Store, jobs: dict[str, Job], bars: Progress) -> None:
        self.store, self.jobs, self.bars = store, jobs, bars
        cost = sum(job.task.cost for job in jobs.values())
        self.total = bars.add_task(f"{len(jobs)} runs", total=cost)
        self.began = time.time()
        self.at_work: dict[str, Any] = {}
        self.over: set[str] = set()

    def watch(self, end: threading.Event) -> None:
        ended = False
        while not ended:
            ended = end.wait(POLL)
            # If the store is at fault, those at work will say so.
            with contextlib.suppress(StoreError):
                self.look()

    def look(self) -> None:
        done = 0.0
        for row in self.store.index.rows():
            if row.key in self.jobs:
                done += row.progress * self.jobs[row.key].task.cost
                self.move(row)
        self.bars.update(self.total, completed=done)

    def move(self, row: Row) -> None:
        job = self.jobs[row.key]
        if row.status == "running":
            if row.key not in self.at_work:
                begins = "compiling" if isinstance(job.task, Training) else "at work"
                bar = self.bars.add_task(job.name, total=1.0, begins=begins)
                self.at_work[row.key] = bar
            self.bars.update(self.at_work[row.key], completed=row.progress)
        elif row.key in self.at_work:
            self.bars.remove_task(self.at_work.pop(row.key))
        if (row.finished or 0.0) >= self.began and row.key not in self.over:
            self.over.add(row.key)
            line = f"{job.name} {row.status} after {row.seconds:.1f} s"
            self.bars.console.print(f"{line} ({len(self.over)} of {len(self.jobs)})", markup=False)
