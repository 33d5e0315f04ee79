"""Spec × seeds → store: skips what is done, resumes what was interrupted, survives a lost worker.

A job is idempotent and persists its own result: whoever runs it claims the run in the store, works
on and writes there. So a worker, or this whole process, may be killed at any time, the jobs may be
handed out twice, and two processes may work through the same list on one store: every run is done
once, and the results are those of an undisturbed run.
"""

import contextlib
import fnmatch
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

from flattest.errors import FlattestError, first_line
from flattest.evidence import Verdict
from flattest.experiments.expectations import Expectation, Others, Result
from flattest.experiments.experiment import VARIANTS, Experiment, Task, VariantName
from flattest.experiments.keys import run_key
from flattest.experiments.registry import experiment, matching
from flattest.files import StoreError
from flattest.machine import interrupts_held_back
from flattest.runs import user_file
from flattest.runs.index import Row
from flattest.runs.provenance import available_cores
from flattest.runs.store import LeaseLost, Store, StoredRun

POLL = 0.5  # seconds between two looks at the store
PATIENCE = "10s"  # for a scheduler to answer
# One thread a worker: as many workers as cores would otherwise fight for them.
WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


class Job(msgspec.Struct, frozen=True):
    """One run to do: a task and its seed, under the name of who asks."""

    task: Task
    seed: int
    label: str

    @property
    def key(self) -> str:
        return run_key(self.task, self.seed)


class Judgement(msgspec.Struct, frozen=True):
    """An experiment judged on the runs the store has; `key` is that of the judged experiment.

    It is met if every seed has a result (`missing` have none) and every verdict is.
    """

    experiment: str
    variant: VariantName
    key: str
    claim: str
    met: bool
    runs: tuple[StoredRun, ...]
    missing: int
    verdicts: tuple[Verdict, ...]


def run(
    chosen: Iterable[Experiment],
    variant: VariantName,
    store: Store,
    seeds: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    console: Console | None = None,
    preload: Path | None = None,
) -> list[Judgement]:
    """Run the experiments that are not done, then judge them.

    `seeds` overrides each experiment's own number. `workers` processes are started (by default one
    a core; with 1 the work is done in this process), unless the address of a Dask `scheduler` is
    given. Runs that failed are tried again. `preload` is a user's Python file that every worker
    imports first, for the activations it registers.
    """
    chosen = list(chosen)
    jobs = plan(with_needed(chosen, variant), variant, store, seeds)
    if jobs:
        with shown(store, jobs, console or Console(stderr=True)):
            do(jobs, store, workers, scheduler, preload)
    return [judge(e, variant, store, seeds) for e in chosen]


def with_needed(chosen: Iterable[Experiment], variant: VariantName) -> list[Experiment]:
    """The experiments and those that their expectations compare with, each once.

    By key, since a user's spec may bear the name of another experiment and does not replace it.
    """
    found = {e.key: e for e in chosen}
    for e in list(found.values()):
        for name in e.variant(variant).needs:
            other = experiment(name)
            found.setdefault(other.key, other)
    return list(found.values())


def plan(
    chosen: Iterable[Experiment], variant: VariantName, store: Store, seeds: int | None = None
) -> list[Job]:
    """The runs that are not done, each once, asked for in the store; the longest first.

    One whose results cannot be read is to be done again.
    """
    jobs: dict[str, Job] = {}
    for e in chosen:
        v = e.variant(variant)
        for seed in range(v.count(seeds)):
            job = Job(v.task, seed, e.name if variant == "full" else f"{e.name}:quick")
            key = store.add(job.task, seed, job.label)
            found = store.run(key)
            if found is None or not found.examined().done:
                jobs.setdefault(key, job)
    return sorted(jobs.values(), key=lambda job: -job.task.cost)


def work(root: Path, job: Job) -> bool:
    """Do one job; False if another process holds its run, which is then not done.

    What goes wrong in the task is recorded in the run, which has failed. What goes wrong in the
    store (no space, no access) would go wrong for every run, and is raised. Products of matrices
    are done by one thread, since how many there are decides how BLAS rounds.
    """
    store = Store.open(root)
    claim = store.claim(job.key)
    if claim is None:
        found = store.run(job.key)
        return found is not None and found.done
    try:
        with claim, threadpool_limits(1):
            claim.finish(**msgspec.structs.asdict(job.task.execute(job.seed, claim)))
    except LeaseLost:
        return False
    except StoreError:
        raise
    except Exception:
        logging.getLogger(__name__).debug("The run %s failed.", job.key, exc_info=True)
    return True


def do(
    jobs: Sequence[Job],
    store: Store,
    workers: int | None,
    scheduler: str | None,
    preload: Path | None = None,
) -> None:
    """Do the jobs here or on a cluster, waiting for those that another process has in hand."""
    if workers is not None and workers < 1:
        raise FlattestError(f"The number of workers must be at least 1, not {workers}.")
    count = min(workers or available_cores(), len(jobs))
    root = store.root.absolute()
    if scheduler is None and count == 1:
        until_done(jobs, lambda waiting: [(job, work(root, job)) for job in waiting])
        return
    with cluster(count, scheduler, preload) as client:
        until_done(jobs, lambda waiting: on_cluster(client, root, waiting))


def until_done(
    jobs: Sequence[Job], round: Callable[[Sequence[Job]], Iterable[tuple[Job, bool]]]
) -> None:
    """Offer the jobs in rounds, until nobody else has any of them in hand."""
    while jobs:
        jobs = [job for job, over in round(jobs) if not over]
        if jobs:
            time.sleep(POLL)


def on_cluster(client: Any, root: Path, jobs: Sequence[Job]) -> list[tuple[Job, bool]]:
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
def cluster(workers: int, scheduler: str | None, preload: Path | None = None) -> Iterator[Any]:
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
            if preload is not None:
                client.upload_file(str(preload))
            yield client
            return
        with interrupts_held_back(), failures_to_start():
            processes = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                # Any free port: None would mean 8787, and a warning where that is taken.
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
                memory_limit=0,
                env=WORKER_ENVIRONMENT | dict(os.environ),
                preload=[user_file.statement(preload)] if preload is not None else [],
            )
        stack.enter_context(processes)
        yield stack.enter_context(Client(processes))


@contextlib.contextmanager
def failures_to_start() -> Iterator[None]:
    """Within it, workers that cannot start are said in one sentence."""
    try:
        yield
    except RuntimeError as error:
        reason = first_line(error.__cause__ or error)
        raise FlattestError(
            f"The worker processes cannot start: {reason}; --workers 1 does without them."
        ) from error


def connected(address: str) -> Any:
    from distributed import Client

    try:
        return Client(address, timeout=PATIENCE)
    except (OSError, ValueError, TimeoutError) as error:
        raise FlattestError(
            f"No Dask scheduler answers at {address}: start one with `dask scheduler`, "
            "or leave --scheduler out to work on this machine."
        ) from error


@contextlib.contextmanager
def shown(store: Store, jobs: Sequence[Job], console: Console) -> Iterator[None]:
    """Progress bars, one for all jobs and one for each at work, wherever they are worked on.

    Where there is no terminal, only a line for each that is over. They show what the store says,
    so runs that another process has in hand move too.
    """
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:5.1f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
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
                name = f"{job.label} seed {job.seed}"
                self.at_work[row.key] = self.bars.add_task(name, total=1.0)
            self.bars.update(self.at_work[row.key], completed=row.progress)
        elif row.key in self.at_work:
            self.bars.remove_task(self.at_work.pop(row.key))
        if (row.finished or 0.0) >= self.began and row.key not in self.over:
            self.over.add(row.key)
            line = f"{job.label} seed {job.seed} {row.status} after {row.seconds:.1f} s"
            self.bars.console.print(f"{line} ({len(self.over)} of {len(self.jobs)})", markup=False)


def results(
    e: Experiment, variant: VariantName, store: Store, seeds: int | None = None
) -> list[Result]:
    """What the store has of an experiment: one result for each seed that is done."""
    return [result(found) for found in stored(e, variant, store, seeds) if found.done]


def stored(
    e: Experiment, variant: VariantName, store: Store, seeds: int | None = None
) -> list[StoredRun]:
    """The runs of an experiment that the store knows, by seed; broken if they cannot be read."""
    found = (store.run(key) for key in e.variant(variant).keys(seeds))
    return [run.examined() if run.done else run for run in found if run is not None]


def find_runs(store: Store, patterns: Sequence[str]) -> list[StoredRun]:
    """The runs of the experiments that match, whichever of those that share a run asked first.

    Runs of experiments that are not in the registry are found by their label.
    """
    runs = store.runs()
    most = max((run.seed for run in runs), default=0) + 1
    keys: set[str] = set()
    for pattern in patterns:
        labelled = {run.key for run in runs if has_label(run, pattern)}
        try:
            known = matching(pattern)
        except FlattestError:
            if not labelled:
                raise
            known = []
        keys |= labelled.union(*(e.variant(v).keys(most) for e in known for v in VARIANTS))
    return [run for run in runs if run.key in keys]


def has_label(run: StoredRun, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(n, pattern) for n in (run.label, run.label.partition(":")[0]))


def result(found: StoredRun) -> Result:
    return Result(found.seed, found.status, found.series(), found.params(), found.seconds)


def judge(e: Experiment, variant: VariantName, store: Store, seeds: int | None = None) -> Judgement:
    """Judge an experiment on the runs that are done; none are started.

    An expectation that cannot be judged, such as a comparison with what was not run, is not met.
    """

    def others(name: str) -> Sequence[Result]:
        found = results(experiment(name), variant, store, seeds)
        if not found:
            raise FlattestError(f"{name} has not been run: {how_to_run(name, variant)} does it.")
        return found

    runs = stored(e, variant, store, seeds)
    here = [result(found) for found in runs if found.done]
    v = e.variant(variant)
    verdicts = tuple(verdict(x, here, others) for x in v.expectations) if here else ()
    missing = v.count(seeds) - len(here)
    met = missing == 0 and all(verdict.holds for verdict in verdicts)
    return Judgement(e.name, variant, e.key, e.claim, met, tuple(runs), missing, verdicts)


def how_to_run(name: str, variant: VariantName) -> str:
    """The command that makes an experiment's runs, to be quoted within a sentence."""
    return f"`flattest run {name}{' --full' if variant == 'full' else ''}`"


def verdict(expected: Expectation, here: Sequence[Result], others: Others) -> Verdict:
    try:
        return expected.verdict(here, others)
    except FlattestError as error:
        return Verdict(str(error), math.nan, expected.threshold, expected.side)
