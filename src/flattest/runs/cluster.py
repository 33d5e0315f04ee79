"""A Dask cluster: processes on this machine, or a scheduler elsewhere.

Nothing here waits in silence for what cannot come: a cluster without workers, or whose scheduler is
gone, ends with a sentence.
"""

import concurrent.futures
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flattest.errors import FlattestError, first_line
from flattest.machine import SHARE, interrupts_held_back, share_of_cores
from flattest.runs.plan import Job
from flattest.runs.user_file import Reference

# One thread per product: as many workers as cores would otherwise fight for them.
WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


DEATHS = 5  # of workers at one job, after which it is given up
PATIENCE = 30.0  # seconds without a worker, or without a word from the scheduler
POLL = 0.1  # seconds between two looks at what is done
KEPT = "What is done is kept, and the same command goes on from there."


class WorkersLost(FlattestError):
    """No worker is left, and none has come for a while."""


def on_cluster(
    client: Any,
    work: Callable[[Path, Job], bool],
    root: Path,
    jobs: Sequence[Job],
    say: Callable[[str], None],
) -> list[tuple[Job, bool]]:
    """One round on a Dask cluster, which gives a lost worker's job to another.

    A job at which workers keep dying, or which they cannot read, is given up when the others are
    over.
    """
    from distributed import KilledWorker
    from distributed.protocol.pickle import dumps

    with _one_sentence(client):
        futures = {
            client.submit(_unpacked, work, root, dumps(job), pure=False): job for job in jobs
        }
        over, given_up = [], []
        for future in _completed(client, futures, say):
            job = futures[future]
            try:
                over.append((job, future.result()))
            except KilledWorker as error:
                deaths = error.allowed_failures + 1
                given_up.append(f"{deaths} workers in a row died at {job.name}.")
            except Unreadable as error:
                given_up.append(f"The workers cannot read {job.name}: {error}")
    if given_up:
        raise FlattestError(f"{given_up[0]} {KEPT}")
    return over


class Unreadable(FlattestError):
    """A job that cannot be made again from what was sent."""


def _unpacked(work: Callable[[Path, Job], bool], root: Path, packed: bytes) -> bool:
    """The job is sent as bytes: Dask ends a worker that cannot read a message."""
    from distributed.protocol.pickle import loads

    try:
        job = loads(packed)
    except Exception as error:
        raise Unreadable(f"{first_line(error)}.") from None
    return work(root, job)


def _completed(
    client: Any, futures: Mapping[Any, Job], say: Callable[[str], None]
) -> Iterator[Any]:
    """The futures as they are over; an error once there has been no worker for a while."""
    from distributed import as_completed

    completed, seen, said = as_completed(futures), time.monotonic(), False
    while not completed.is_empty():
        batch = completed.next_batch(block=False)
        yield from batch
        if batch:
            continue
        if _workers(client):
            seen, said = time.monotonic(), False
        elif time.monotonic() - seen > PATIENCE:
            raise WorkersLost(f"No worker has been left for {PATIENCE:.0f} s. {KEPT}")
        elif not said:
            say(f"No worker is left; waiting {PATIENCE:.0f} s for another.")
            said = True
        time.sleep(POLL)


def _workers(client: Any) -> int:
    """How many there are; the scheduler has its time to say so."""
    return len(client.sync(client.scheduler.ncores, callback_timeout=PATIENCE))


@contextlib.contextmanager
def _one_sentence(client: Any) -> Iterator[None]:
    """A scheduler that is gone, or does not answer, said in one sentence."""
    address = client.scheduler.address
    try:
        yield
    except FlattestError:
        raise
    except (concurrent.futures.CancelledError, OSError, TimeoutError) as error:
        raise FlattestError(f"The Dask scheduler at {address} is gone. {KEPT}") from error


@contextlib.contextmanager
def cluster(workers: int, scheduler: str | None, preload: Reference | None = None) -> Iterator[Any]:
    """A client of the scheduler at that address, or of a cluster of processes on this machine."""
    import dask
    from distributed import Client, LocalCluster
    from distributed.utils import silence_logging_cmgr

    quiet = {
        "distributed.scheduler.allowed-failures": DEATHS - 1,
        "distributed.worker.multiprocessing-method": "spawn",
        "distributed.admin.tick.limit": "1h",
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(quiet))
        if scheduler is not None:
            # A scheduler that is gone is said in our sentence, not in Dask's tracebacks too.
            stack.enter_context(silence_logging_cmgr(logging.CRITICAL))
            client = stack.enter_context(connected(scheduler))
            if preload is not None:
                send(preload, client)
            yield client
            return
        share = {SHARE: str(max(1, share_of_cores() // workers))}
        try:
            with interrupts_held_back():
                processes = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=True,
                    # Any free port: None would mean 8787, and a warning where that is taken.
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                    memory_limit=0,
                    env=WORKER_ENVIRONMENT | dict(os.environ) | share,
                    preload=[preload.statement] if preload is not None else [],
                )
        except RuntimeError as error:
            reason = first_line(error.__cause__ or error)
            raise FlattestError(
                f"The worker processes cannot start: {reason}; --workers 1 does without them."
            ) from error
        stack.enter_context(processes)
        yield stack.enter_context(Client(processes))


def send(reference: Reference, client: Any) -> None:
    """To all workers, those that come later too."""
    with _one_sentence(client):
        client.register_plugin(_preloading(reference))


def _preloading(reference: Reference) -> Any:
    """A plugin by which workers elsewhere get the user's file, run it and call the function."""
    from distributed import WorkerPlugin

    name, text, function = reference.path.name, reference.path.read_text(), reference.function

    class Preload(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            path = Path(worker.local_directory) / name
            path.write_text(text)
            Reference(path, function).keep()

    return Preload()


def connected(address: str, patience: str = "10s") -> Any:
    """A client of the scheduler there, which has `patience` to answer."""
    from distributed import Client

    try:
        return Client(address, timeout=patience)
    except (OSError, ValueError, TimeoutError) as error:
        raise FlattestError(
            f"No Dask scheduler answers at {address}: start one with `dask scheduler`, "
            "or leave --scheduler out to work on this machine."
        ) from error
