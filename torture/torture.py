"""What must never happen, tried many times: a run lost, damage unseen, a hang, a traceback.

    make torture                          every part, within half an hour
    python torture/torture.py flips       one part
    python torture/torture.py --share 0.1 a tenth of every count
    python torture/torture.py --write     the rows of docs/reliability.md too

Each part draws its cases from a seed of its own, and is tried in a process of its own, five at a
time; a part that is not through when the half hour is over ends with the cases it has. Commands
and calls are made in forked children of a process that has everything imported; those that hang are
killed and counted. What went wrong is told in a file, whose name is said at the end.
"""

import argparse
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from children import BAD, DETAILS, IS_PART, Outcome
from damage import clocks, disks, flips
from fuzz import calls, commands, processes, specs
from kills import CALM, kills
from tables import source_of_this, write

from flattest.cli._dispatch import commands as commands_there_are, load
from flattest.experiments.registry import experiments

LIMIT = 30 * 60.0  # seconds for everything
AT_ONCE = 5  # parts: those that kill wait most of the time
BEGIN = "<!-- torture -->"
HEAD = """\
| part | cases | ended | lost | silent | hung | tracebacks | seconds | commit |
| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- |
"""
# Imported first: a Ctrl-C in the middle of an import would leave half of it to the next case.
SLOW = (
    "jax",
    "numba",
    "distributed",
    "scipy.optimize",
    "scipy.stats",
    "clarabel",
    "matplotlib.figure",
    "rich.live",
)
SLOW += ("flattest.training.train", "flattest.lab.scenario", "flattest.report.figure")
Part = Callable[[random.Random, Path, int], Iterator[Outcome]]
# The longest first.
PARTS: dict[str, tuple[Part, int]] = {
    "runners": (partial(kills, "runner"), 30),
    "schedulers": (partial(kills, "scheduler"), 10),
    "workers": (partial(kills, "worker"), 10),
    "flips": (flips, 500),
    "specs": (specs, 1000),
    "parents": (partial(kills, "parent"), 10),
    "commands": (commands, 2000),
    "disks": (disks, 18),
    "processes": (processes, 100),
    "calls": (calls, 2000),
    "clocks": (clocks, 50),
}


def asked_of(name: str, share: float) -> int:
    return max(1, round(share * PARTS[name][1]))


def tortured(name: str, count: int, until: float) -> tuple[Counter[Outcome], float]:
    """How the cases of a part ended, as many as there is time for, and the seconds they took."""
    part, home, began = PARTS[name][0], os.getcwd(), time.monotonic()
    outcomes: Counter[Outcome] = Counter()
    with tempfile.TemporaryDirectory(
        prefix=f"torture-{name}-", ignore_cleanup_errors=True
    ) as folder:
        try:
            for outcome in part(random.Random(name), Path(folder), count):
                outcomes[outcome] += 1
                if time.monotonic() > until:
                    break
        except KeyboardInterrupt:
            print(f"{name} was interrupted; what it has so far:", file=sys.stderr)
        finally:
            os.chdir(home)
    return outcomes, time.monotonic() - began


def row(name: str, asked: int, outcomes: Counter[Outcome], seconds: float, source: str) -> str:
    """A part's line of the table; one that did not reach its count says so."""
    tried = sum(outcomes.values())
    count = str(tried) if tried >= asked else f"{tried} of {asked}"
    ends = ", ".join(f"{n} {what}" for what, n in outcomes.most_common() if what not in BAD)
    bad = " | ".join(str(outcomes[what]) for what in BAD)
    return f"| {name} | {count} | {ends} | {bad} | {seconds:.0f} | {source} |"


def warm() -> None:
    """Import everything, and start nothing that a fork would not survive (JAX's threads)."""
    for name in commands_there_are():
        load(name)
    for name in SLOW:
        importlib.import_module(name)
    experiments()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--share", type=float, default=1.0, help="of every count")
    parser.add_argument("--seconds", type=float, default=LIMIT, help="after which parts end")
    parser.add_argument("--write", action="store_true", help="write docs/reliability.md")
    return parser.parse_args()


def one_part(name: str, share: float, seconds: float) -> tuple[str, bool]:
    """The row of one part, tried in this process, and whether all of it is as it must be."""
    source = source_of_this()  # as it is now: it may be edited before the end
    end = time.monotonic() + seconds
    warm()
    count = asked_of(name, share)
    outcomes, took = tortured(name, count, end)
    line = row(name, count, outcomes, took, source)
    return line, not any(outcomes[what] for what in BAD)


def in_a_process(name: str, share: float, end: float) -> tuple[str, str, bool]:
    """The name, the row of one part, tried in a process of its own, and whether all is well."""
    began = time.monotonic()
    seconds = max(60.0, end - began)
    words = [name, "--share", str(share), "--seconds", str(seconds)]
    done = subprocess.run([sys.executable, __file__, *words], stdout=-1, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(f"| {name} |")]
    died = row(name, asked_of(name, share), Counter(), time.monotonic() - began, source_of_this())
    return name, lines[-1] if lines else died, done.returncode == 0 and bool(lines)


def everything_tried() -> int:
    # A shell has what it starts in the background ignore Ctrl-C, and so would all that we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asked = arguments()
    if len(asked.parts) == 1 and not asked.write:
        line, well = one_part(asked.parts[0], asked.share, asked.seconds)
        print(line, flush=True)
        return told_where(0 if well else 1)
    end, failed = time.monotonic() + asked.seconds, 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tried = [pool.submit(in_a_process, n, asked.share, end) for n in asked.parts or PARTS]
        for future in as_completed(tried):
            name, line, well = future.result()
            print(line, flush=True)
            failed += not well
            if asked.write:
                write({name: line}, BEGIN, HEAD, PARTS)
    return told_where(1 if failed else 0)


def told_where(code: int) -> int:
    """The exit code, where something went wrong with a word on where it is told; calm runs go."""
    if not IS_PART:
        shutil.rmtree(CALM, ignore_errors=True)
        if DETAILS.exists():
            print(f"What went wrong is told in {DETAILS}.", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(everything_tried())
