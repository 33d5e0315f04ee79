"""Cases in forked children of a warm process: what they end with, and whether they end."""

import contextlib
import os
import select
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

PATIENCE = 300.0  # seconds for one case, on a busy machine
BATCH = 25  # cases in one child
BAD = ("lost", "silent", "hung", "traceback")
# The name of this torture, of which there may be several at once; its parts inherit it.
IS_PART = "TORTURE" in os.environ
TORTURE = os.environ.setdefault("TORTURE", f"{os.getpid()}-{time.time_ns()}")
DETAILS = Path(tempfile.gettempdir()) / f"torture-{TORTURE}.txt"  # what went wrong
Outcome = str
Case = Callable[[], Outcome]


def forked(case: Case, patience: float = PATIENCE) -> Outcome:
    """The outcome of one case in a child process."""
    (outcome,) = in_children([case], patience)  # to its end: the child is ended and waited for
    return outcome


def in_children(cases: Sequence[Case], patience: float = PATIENCE) -> Iterator[Outcome]:
    """The outcomes of cases, many in one child; after one that hangs or dies comes a new child."""
    done = 0
    while done < len(cases):
        child, pipe = child_of(cases[done : done + BATCH])
        try:
            for _ in cases[done : done + BATCH]:
                ready = select.select([pipe], [], [], patience)[0]
                line = pipe.readline().strip() if ready else "hung"
                yield line or bad("traceback", "the process died")
                done += 1
                if not ready or not line:
                    break
        finally:  # also of who is interrupted
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pipe.close()


def child_of(cases: Sequence[Case]) -> tuple[int, TextIO]:
    """A child process that writes a line for each case."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX has not started its threads in this process
        child = os.fork()
    if child:
        os.close(write)
        return child, os.fdopen(read, buffering=1)
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    for case in cases:
        os.write(write, f"{ended(case)}\n".encode())
    os._exit(0)


def ended(case: Case) -> Outcome:
    try:
        return case()
    except BaseException:
        return bad("traceback", traceback.format_exc())


def bad(outcome: Outcome, why: str) -> Outcome:
    """The outcome, its reason kept for who mends it."""
    with contextlib.suppress(OSError), DETAILS.open("a") as file:
        file.write(f"{outcome}: {why.strip()}\n\n")
    return outcome
