"""Processes killed −9 at random moments: runner, worker, scheduler, parent of workers.

The same command again ends with the bits of runs that nobody disturbed. Where it does not, the
details say which engine it was, where its runs stood when it was killed, which arrays differ and
what the store says; the store as it was killed, as it ended and the calm one are kept.
"""

import fcntl
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import engines
import numpy as np
from children import PATIENCE, TORTURE, Outcome, bad, child_of, forked

from flattest.experiments.experiment import Experiment
from flattest.runs.store import Store

SAME = "the same bits"
# Calm runs, for all parts of one torture: another time the code may be another.
CALM = Path(tempfile.gettempdir()) / f"torture-calm-{TORTURE}"
Bits = dict[str, bytes]


def kills(victim: str, rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """Every engine in turn."""
    for number, name in zip(range(count), itertools.cycle(engines.hastily()), strict=False):
        calm, root = undisturbed(name), folder / f"kill {number}"
        outcome = VICTIMS[victim](rng, name, root)
        if outcome is None:
            killed = folder / f"killed {number}"
            if root.exists():
                shutil.copytree(root, killed)
            outcome = again(name, root, calm, victim, killed)
            shutil.rmtree(killed, ignore_errors=True)
        yield outcome


def undisturbed(name: str) -> Bits:
    """The bits of runs that nobody disturbs, done once for all parts; compiling takes its time."""
    e, root = engines.experiment_of(name), CALM / name
    CALM.mkdir(exist_ok=True)
    with (CALM / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended = forked(lambda: engines.run(e, root) or "done", patience=900)
        found = bits(Store.open(root), e) if ended == "done" else {}
    if not found:
        raise RuntimeError(f"An undisturbed run of {name} ended with {ended}: {standing(root)}")
    return found


def bits(store: Store, e: Experiment) -> Bits:
    """All that the runs have produced, by name; nothing while one is not done."""
    held = {}
    for seed in range(e.quick.seeds):
        run = store.run_of(e.quick.task, seed)
        if run is None or not run.done:
            return {}
        kinds = {"series": run.series(), "params": run.params() or {}}
        for kind, arrays in kinds.items():
            for name, value in arrays.items():
                held[f"seed {seed} {kind} {name}"] = np.ascontiguousarray(value).tobytes()
    return held


def differing(found: Bits, expected: Bits) -> str:
    """The names of what differs."""
    if not found or not expected:
        return "nothing is there" if not found else "the calm runs are not there"
    others = sorted(n for n in found.keys() | expected.keys() if found.get(n) != expected.get(n))
    return ", ".join(others)


def standing(root: Path) -> str:
    """What the files of a store say of its runs, each with its newest checkpoint and failure; the
    store is not opened, which might change it."""
    said = []
    for folder in sorted(root.glob("runs/*")):
        record = folder / "record.json"
        known = json.loads(record.read_bytes()) if record.exists() else {"status": "not begun"}
        names = "status", "sentence", "step", "progress", "started", "finished"
        said.append(f"  {folder.name}: { {n: known[n] for n in names if n in known} }")
        saved = sorted(path.name for path in (folder / "scratch").glob("*"))
        said.append(f"    scratch: {', '.join(saved[-3:]) or 'empty'}")
        if (folder / "failure.txt").exists():
            said.append((folder / "failure.txt").read_text())
    return "\n".join(said) or "  no runs"


def again(
    name: str, root: Path, expected: Bits, victim: str = "run", killed: Path | None = None
) -> Outcome:
    """The outcome of the same command, undisturbed this time."""
    e = engines.experiment_of(name)

    def resumed() -> Outcome:
        engines.run(e, root)
        found = bits(Store.open(root), e)
        if found == expected != {}:
            return f"{victim}: {SAME}"
        why = f"{name} after its {victim} was disturbed: {differing(found, expected)}"
        return bad("lost", f"{why}\n{kept(name, root, killed)}")

    return forked(resumed)


def kept(name: str, root: Path, killed: Path | None) -> str:
    """Copies of the stores for who looks into it, and what they say."""
    place = Path(tempfile.mkdtemp(prefix=f"torture-lost-{name.replace(' ', '-')}-"))
    said = [f"Kept in {place}."]
    for what, store in {"killed": killed, "ended": root, "calm": CALM / name}.items():
        if store is not None and store.exists():
            shutil.copytree(store, place / what)
            said.append(f"{what}:\n{standing(store)}")
    listed = Store.open(root).runs()
    said += [f"status: seed {run.seed} {run.status} {run.sentence}" for run in listed]
    return "\n".join(said)


def kill_runner(rng: random.Random, name: str, root: Path) -> Outcome | None:
    """One process that does the runs itself."""
    child, pipe = child_of([lambda: engines.run(engines.experiment_of(name), root) or "done"])
    begun(root, rng)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pipe.close()
    return None


def kill_parent(rng: random.Random, name: str, root: Path) -> Outcome | None:
    """The process that has started workers; they end by themselves."""
    with started("engines.py", name, root, "2") as runner:
        begun(root, rng)
        workers = children(runner.pid)
        runner.kill()
    return None if gone(workers) else bad("hung", f"{name}: workers outlive their parent")


def kill_worker(rng: random.Random, name: str, root: Path) -> Outcome | None:
    """One of two workers; the command goes on by itself."""
    with started("engines.py", name, root, "2") as runner:
        begun(root, rng)
        workers = [pid for pid in children(runner.pid) if "spawn_main" in words_of(pid)]
        if workers:
            kill(rng.choice(workers))
        return ended(runner, 0)


def kill_scheduler(rng: random.Random, name: str, root: Path) -> Outcome | None:
    """A scheduler that was started by itself, as was its worker; the command ends in a sentence."""
    root.mkdir()
    place = ("--scheduler-file", str(root / "scheduler"))
    dask = "distributed.cli.dask_"
    with (
        started("-m", f"{dask}scheduler", *place, "--port", "0", "--no-dashboard") as scheduler,
        started(
            "-m", f"{dask}worker", *place, "--no-nanny", "--no-dashboard", "--nthreads", "1"
        ) as worker,
    ):
        address = address_in(root / "scheduler")
        with started("engines.py", name, root, "1", address) as runner:
            begun(root, rng)
            scheduler.kill()
            outcome = ended(runner, 0, 2)
        worker.kill()
    return outcome


VICTIMS: dict[str, Callable[[random.Random, str, Path], Outcome | None]] = {
    "runner": kill_runner,
    "worker": kill_worker,
    "scheduler": kill_scheduler,
    "parent": kill_parent,
}


class started:
    """A Python process; nothing of it is left behind."""

    def __init__(self, *words: object) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        here = Path(__file__).parent
        first = [str(here / words[0])] if str(words[0]).endswith(".py") else [str(words[0])]
        self.process = subprocess.Popen(
            [sys.executable, *first, *map(str, words[1:])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
        )
        self.pid, self.kill = self.process.pid, self.process.kill

    def __enter__(self) -> "started":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()

    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")


def ended(runner: started, *codes: int) -> Outcome | None:
    """None where the process ends with one of the codes and without a traceback."""
    try:
        code = runner.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        return bad("hung", runner.said())
    if code not in codes or "Traceback" in runner.said():
        return bad("traceback", f"code {code}: {runner.said()}")
    return None


def begun(root: Path, rng: random.Random) -> None:
    """Wait for a random moment: of the start in one case of four, else of the runs."""
    if rng.random() < 0.25:
        time.sleep(rng.uniform(0.0, 3.0))
        return
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and not any(root.glob("runs/*/record.json")):
        time.sleep(0.02)
    time.sleep(rng.uniform(0.0, 1.0))


def children(pid: int) -> list[int]:
    """The processes that `pid` has started."""
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def words_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def gone(pids: list[int]) -> bool:
    """Whether the processes end within a minute; those that do not are killed."""
    end = time.monotonic() + 60
    while (left := [pid for pid in pids if words_of(pid)]) and time.monotonic() < end:
        time.sleep(0.1)
    for pid in left:
        kill(pid)
    return not left


def address_in(path: Path) -> str:
    import msgspec

    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            return msgspec.json.decode(path.read_bytes())["address"]
        except (OSError, msgspec.DecodeError):
            time.sleep(0.05)
    raise TimeoutError("the scheduler does not start")
