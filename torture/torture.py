"""What must never happen, tried many times: a run lost, damage unseen, a hang, a traceback.

    make torture                          every part, within half an hour
    python torture/torture.py flips       one part
    python torture/torture.py --share 0.1 a tenth of every count
    python torture/torture.py --write     the rows of docs/reliability.md too

Each part draws its cases from a seed of its own. Commands and calls are made in forked children of
a process that has everything imported; those that hang are killed and counted.
"""

import argparse
import importlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from children import BAD, Outcome
from damage import clocks, disks, flips
from fuzz import calls, commands, processes, specs
from kills import kills

import flattest as ft
from flattest.cli._dispatch import commands as commands_there_are, load
from flattest.experiments.registry import experiments
from flattest.runs.provenance import commit

LIMIT = 30 * 60.0  # seconds for everything
DOCUMENT = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- torture -->", "<!-- end -->"
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
    "clarabel",
    "matplotlib.figure",
    "rich.live",
)
SLOW += ("flattest.training.train", "flattest.lab.scenario", "flattest.report.figure")
Part = Callable[[random.Random, Path, int], Iterator[Outcome]]
PARTS: dict[str, tuple[Part, int]] = {
    "clocks": (clocks, 50),
    "specs": (specs, 1000),
    "calls": (calls, 2000),
    "commands": (commands, 2000),
    "processes": (processes, 100),
    "disks": (disks, 18),
    "flips": (flips, 500),
    "runners": (partial(kills, "runner"), 30),
    "workers": (partial(kills, "worker"), 10),
    "schedulers": (partial(kills, "scheduler"), 10),
    "parents": (partial(kills, "parent"), 10),
}


def tortured(name: str, share: float, until: float) -> tuple[int, Counter[Outcome], float]:
    """How many cases of a part there were, how they ended, and the seconds they took."""
    part, count = PARTS[name]
    home, began = os.getcwd(), time.monotonic()
    outcomes: Counter[Outcome] = Counter()
    with tempfile.TemporaryDirectory(
        prefix=f"torture-{name}-", ignore_cleanup_errors=True
    ) as folder:
        try:
            for outcome in part(random.Random(name), Path(folder), max(1, round(share * count))):
                outcomes[outcome] += 1
                if time.monotonic() > until:
                    break
        except KeyboardInterrupt:
            print(f"{name} was interrupted; what it has so far:", file=sys.stderr)
        finally:
            os.chdir(home)
    return sum(outcomes.values()), outcomes, time.monotonic() - began


def row(name: str, count: int, outcomes: Counter[Outcome], seconds: float, source: str) -> str:
    ends = ", ".join(f"{n} {what}" for what, n in outcomes.most_common() if what not in BAD)
    bad = " | ".join(str(outcomes[what]) for what in BAD)
    return f"| {name} | {count} | {ends} | {bad} | {seconds:.0f} | {source} |"


def source_of_this() -> str:
    """The commit, marked where the package was edited since."""
    found = commit(Path(ft.__file__))
    return found[:12] + ("+changes" if found.endswith("+changes") else "") or "unknown"


def write(rows: dict[str, str]) -> None:
    """The rows into the document's table, in the place of those of the same parts."""
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    kept = {line.split("|")[1].strip(): line for line in table.splitlines() if line[:2] == "| "}
    lines = "\n".join((kept | rows)[name] for name in PARTS if name in kept | rows)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{HEAD}{lines}\n{END}{after}")


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
    parser.add_argument("--write", action="store_true", help="write docs/reliability.md")
    return parser.parse_args()


def everything_tried() -> int:
    asked, end, bad = arguments(), time.monotonic() + LIMIT, 0
    source = source_of_this()  # as it is now: it may be edited before the end
    warm()
    for name in asked.parts or PARTS:
        count, outcomes, seconds = tortured(name, asked.share, end)
        line = row(name, count, outcomes, seconds, source)
        bad += sum(outcomes[what] for what in BAD)
        print(line, flush=True)
        if asked.write:
            write({name: line})
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(everything_tried())
