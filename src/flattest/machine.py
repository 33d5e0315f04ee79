"""This machine: its cores, what processes started here inherit (BLAS threads, Ctrl-C), and modules
that are slow to import."""

import functools
import importlib
import os
import platform
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from flattest.errors import FlattestError

SHARE = "FLATTEST_CORES"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", SHARE)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes started within have one thread: the processes already share out the cores, and
    BLAS threads that wait for each other cost a small product fifty times its work."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Ctrl-C waits until the end of the block, and processes started in it never hear it.

    A terminal sends it to all of them; it is for this process to end the others.
    """
    # Started later, it would let through again what is blocked here (CPython before 3.13).
    resource_tracker.ensure_running()
    with _recorded_interrupts() as heard:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if heard:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _recorded_interrupts() -> Iterator[list[int]]:
    """The list of those that came: a mask is of one thread, and any other may take the signal."""
    heard: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield heard  # Python hears signals in its main thread only.
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield heard
    finally:
        signal.signal(signal.SIGINT, before)


class later:
    """The module `name`, imported when an attribute is first asked of it.

    JAX and SciPy take a second to import, and most of what describes a problem needs neither.
    """

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


def available_cores() -> int:
    """The cores this process may use, which in a container are fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_of_cores() -> int:
    """The cores for this process alone: who starts several says so in their environment."""
    return int(os.environ.get(SHARE) or available_cores())


def processes(workers: int | None, jobs: int) -> int:
    """How many processes do so many jobs: as many as are asked for, by default one per core."""
    if workers is not None and workers < 1:
        raise FlattestError(f"The number of workers must be at least 1, not {workers}.")
    return min(workers or share_of_cores(), jobs)


@functools.cache
def place() -> str:
    """Where process numbers mean what they mean here: the host's name, and on Linux this boot and
    this PID namespace, since containers may share a name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return platform.node()
    return f"{platform.node()} ({boot}-{space})"


SHARE_OF_MEMORY = (
    1 / 4
)  # for the arrays of one kind: what is computed from them takes as much again


@functools.cache
def memory() -> float:
    """The bytes that this process may use, which in a container are fewer than the machine's."""
    found = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return found
    return min(found, float(limit)) if limit.isdecimal() else found


def require_memory(numbers: float, what: str) -> None:
    """Refuse so many numbers of 8 bytes where they are too many, before any memory is taken."""
    need, room = 8.0 * numbers, SHARE_OF_MEMORY * memory()
    if need > room:
        raise FlattestError(
            f"{what} would need {need / 1e9:.3g} GB, more than the {room / 1e9:.3g} GB that this "
            "machine has room for; choose smaller sizes."
        )
