"""Doing the jobs: here or on a cluster, until no process has any of them in hand.

A job is idempotent and persists its own result: the process that does it leases the run in the
store, works on and writes there. So a worker, or this whole process, may be killed at any time, the
jobs may be handed out twice, and two processes may work through the same list on one store: every
run is done once, and the results are those of an undisturbed run.
"""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from flattest.experiments.training import Training
from flattest.files import StoreError
from flattest.machine import processes
from flattest.runs.cluster import WorkersLost, cluster, on_cluster
from flattest.runs.lease import LeaseLost
from flattest.runs.plan import Job
from flattest.runs.store import Store
from flattest.runs.user_file import Reference

POLL = 0.5  # seconds between two rounds
LONG = 1.0  # seconds of compiling that are worth a word
CLUSTERS = 3  # how often worker processes are started, where all of them are lost


def work(root: Path, job: Job) -> bool:
    """Do one job; False if another process holds its run, which is then not done.

    What goes wrong in the task is recorded in the run, which has failed. What goes wrong in the
    store (no space, no access) would go wrong for every run, and is raised. Products of matrices
    are done by one thread, since how many there are decides how BLAS rounds: in the first run of a
    process as in the next, so that a run that is gone on with in another process has the same bits.
    """
    store = Store.open(root)
    lease = store.lease(job.key)
    if lease is None:
        found = store.run(job.key)
        return found is not None and found.done
    try:
        with lease, one_thread(job), compiling_said(job):
            lease.finish(job.task.execute(job.seed, lease))
    except LeaseLost:
        return False
    except StoreError:
        raise
    except Exception:
        logging.getLogger(__name__).debug("The run %s failed.", job.key, exc_info=True)
    return True


@contextlib.contextmanager
def one_thread(job: Job) -> Iterator[None]:
    """For all libraries that are there, and those that the job needs are."""
    import scipy.linalg  # noqa: F401 (its BLAS is not NumPy's)
    from threadpoolctl import threadpool_limits

    job.task.load_libraries()
    with threadpool_limits(1):
        yield


@contextlib.contextmanager
def compiling_said(job: Job, least: float = LONG) -> Iterator[None]:
    """Says on the error stream how long the kernels of training were compiled, where they were:
    they are kept on disk, and whoever waits should know that it is for once."""
    if not isinstance(job.task, Training):
        yield
        return
    from numba.core import event

    with event.install_recorder("numba:compile") as seen:
        yield
    seconds = _outermost(seen.buffer)
    if seconds >= least:
        kept = "the kernels are kept, and the next run starts without it"
        print(f"{job.name}: compiling took {seconds:.0f} s, once; {kept}.", file=sys.stderr)


def _outermost(events: Iterable[tuple[float, Any]]) -> float:
    """The time between starts and ends, of events that lie in no other."""
    total, depth = 0.0, 0
    for when, event in events:
        depth += 1 if event.is_start else -1
        if event.is_start and depth == 1:
            total -= when
        elif not event.is_start and depth == 0:
            total += when
    return total


def do(
    jobs: Sequence[Job],
    store: Store,
    workers: int | None,
    scheduler: str | None,
    preload: Reference | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Do the jobs here or on a cluster, waiting for those that another process has in hand.

    Where all processes that this one started are lost, others are started, a few times.
    """
    count = processes(workers, len(jobs))
    root = store.root.absolute()
    if scheduler is None and count == 1:
        until_done(jobs, store, lambda waiting: [(job, work(root, job)) for job in waiting], say)
        return
    attempts = CLUSTERS if scheduler is None else 1
    for attempt in range(1, attempts + 1):
        try:
            with cluster(count, scheduler, preload) as client:
                until_done(jobs, store, lambda js: on_cluster(client, work, root, js, say), say)
            return
        except WorkersLost:
            if attempt == attempts:
                raise
            say(f"The workers are lost; starting others ({attempt} of {attempts - 1}).")


def until_done(
    jobs: Sequence[Job],
    store: Store,
    round: Callable[[Sequence[Job]], Iterable[tuple[Job, bool]]],
    say: Callable[[str], None],
) -> None:
    """Offer the jobs in rounds, until no other process has any of them in hand."""
    said = 0
    while jobs:
        jobs = [job for job, over in round(jobs) if not over]
        if jobs:
            if len(jobs) != said:
                say(f"Waiting for {len(jobs)} runs: {holder(store, jobs[0])}.")
                said = len(jobs)
            time.sleep(POLL)


def holder(store: Store, job: Job) -> str:
    """Who has the run in hand."""
    row = store.index.row(job.key)
    if row is None or row.owner is None:
        return f"{job.name} has just been given back"
    return f"{job.name} is in the hands of process {row.pid} on {row.host}"
