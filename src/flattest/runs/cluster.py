"""A Dask cluster: processes on this machine, or a scheduler elsewhere."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
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


def on_cluster(
    client: Any, work: Callable[[Path, Job], bool], root: Path, jobs: Sequence[Job]
) -> list[tuple[Job, bool]]:
    """One round on a Dask cluster, which gives a lost worker's job to another."""
    from distributed import KilledWorker, as_completed

    futures = {client.submit(work, root, job, pure=False): job for job in jobs}
    over = []
    for future in as_completed(futures):
        try:
            over.append((futures[future], future.result()))
        except KilledWorker as error:
            raise FlattestError(f"Workers keep dying at {futures[future].label}: {error}") from None
    return over


@contextlib.contextmanager
def cluster(workers: int, scheduler: str | None, preload: Reference | None = None) -> Iterator[Any]:
    """A client of the scheduler at that address, or of a cluster of processes on this machine."""
    import dask
    from distributed import Client, LocalCluster

    quiet = {
        "distributed.scheduler.allowed-failures": 10,
        "distributed.worker.multiprocessing-method": "spawn",
        "distributed.admin.tick.limit": "1h",
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(quiet))
        if scheduler is not None:
            client = stack.enter_context(connected(scheduler))
            if not client.scheduler_info()["workers"]:
                print(
                    f"The scheduler at {scheduler} has no workers: the runs wait for one, "
                    f"which `dask worker {scheduler}` starts.",
                    file=sys.stderr,
                )
            if preload is not None:
                client.register_plugin(_preloading(preload))
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
