"""Full disks, flipped bits and clocks that jump, under a store and its runs."""

import contextlib
import random
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import engines
import msgspec
from children import BAD, Outcome, bad, forked, in_children
from kills import Bits, again, bits, differing, undisturbed

from flattest.errors import FlattestError
from flattest.files import read_tensors, write_tensors
from flattest.runs.folder import StoredRun
from flattest.runs.questions import ask_own, questions
from flattest.runs.store import Store
from flattest.training.checkpoint import Checkpoints

ENGINE = "single samples"
YEAR = 3e7  # seconds


def disks(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """A disk is full at some size while a store is made and runs are done; then it has space, and
    the same command ends with the bits of calm runs."""
    engines.hastily()
    expected = undisturbed(ENGINE)
    for number in range(count):
        root = folder / f"disk {number}"
        root.mkdir()
        with disk(root, 4096 * round(1.35**number)) as (shrink, grow):
            seen = forked(partial(on_full_disk, root / "store", shrink))
            grow()
            then = again(ENGINE, root / "store", expected, seen)
            yield seen if seen in BAD else then


Step = Callable[[], Any]


@contextlib.contextmanager
def disk(root: Path, size: int) -> Iterator[tuple[Step, Step]]:
    """A file system of `size` bytes, and what makes it small, called in the process that works, and
    large. Where none may be mounted, no file may grow beyond the size."""
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={size}", "torture", str(root)]
    if subprocess.run(mounted, capture_output=True).returncode:
        yield partial(limit_files, size), lambda: None
        return
    try:
        larger = ["mount", "-o", "remount,size=64m", str(root)]
        yield lambda: None, lambda: subprocess.run(larger, check=True)
    finally:
        subprocess.run(["umount", str(root)], check=True)


def limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def on_full_disk(root: Path, shrink: Step) -> Outcome:
    shrink()
    try:
        engines.run(engines.experiment_of(ENGINE), root)
    except FlattestError:
        return "full"
    return "enough"


def flips(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """One bit of one file of a store flips. Whoever reads it is told, or reads what was written."""
    engines.hastily()
    store = folder / "store"
    forked(lambda: furnished(store), patience=900)
    expected = undisturbed(ENGINE)
    cases, files = [], kinds(store)
    for number in range(count):
        path = files[number % len(files)]
        bit = rng.randrange(8 * path.stat().st_size)
        copy = folder / f"flip {number}"
        cases.append(partial(flipped, store, copy, path.relative_to(store), bit, expected))
    yield from in_children(cases)


def furnished(root: Path) -> Outcome:
    """A store with a run that is done, one that was interrupted, a question and a network."""
    e, store = engines.experiment_of(ENGINE), Store.create(root)
    ask_own(store, [e], "quick")
    engines.run(msgspec.structs.replace(e, quick=msgspec.structs.replace(e.quick, seeds=1)), root)
    write_tensors(root / "network.safetensors", store.runs()[0].params() or {})
    Checkpoints.save, saved = interrupted(Checkpoints.save), Checkpoints.save  # type: ignore[method-assign]
    with contextlib.suppress(KeyboardInterrupt):
        engines.run(e, root)
    Checkpoints.save = saved  # type: ignore[method-assign]
    return "done"


def interrupted(save: Callable[..., None]) -> Callable[..., None]:
    """As Ctrl-C half way."""

    def and_stop(self: Checkpoints, state: Any, *rest: Any) -> None:
        save(self, state, *rest)
        if state.epoch > 300:
            raise KeyboardInterrupt

    return and_stop


def kinds(root: Path) -> list[Path]:
    """Every file that says something, in a fixed order."""
    found = (path for path in root.rglob("*") if path.is_file() and path.name[0] != ".")
    return sorted(path for path in found if not path.name.endswith(("-shm", "-wal")))


def flipped(store: Path, copy: Path, path: Path, bit: int, expected: Bits) -> Outcome:
    """What is told of a copy of the store in which this bit of this file is another."""
    before = told_of_a_copy(store, copy, path, expected)
    try:
        now = told_of_a_copy(store, copy, path, expected, bit)
    except FlattestError:
        return f"{path.suffix}: said"
    return f"{path.suffix}: harmless" if now == before else bad("silent", f"{path} bit {bit}")


def told_of_a_copy(
    store: Path, copy: Path, path: Path, expected: Bits, bit: int | None = None
) -> Any:
    shutil.copytree(store, copy)
    try:
        if bit is not None:
            rotten = bytearray((copy / path).read_bytes())
            rotten[bit // 8] ^= 1 << bit % 8
            (copy / path).write_bytes(rotten)
        return told(copy, path, expected)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def told(root: Path, path: Path, expected: Bits) -> Any:
    """All that can be read of a store, every file of it read, where `path` may have rotted."""
    if path.name == "network.safetensors":
        return [(name, value.tobytes()) for name, value in read_tensors(root / path)[0].items()]
    store = Store.open(root)
    runs = [all_of(run) for run in sorted(store.check(), key=lambda run: run.seed)]
    asked = questions(store)
    if any(question.problem for question in asked):
        raise FlattestError("A question cannot be read.")
    if "scratch" in path.parts or path.suffix == ".sqlite":
        e = engines.experiment_of(ENGINE)
        engines.run(e, root)
        runs.append(bits(store, e) == expected)
    return runs, asked


def all_of(run: StoredRun) -> Any:
    if run.status == "broken":
        raise FlattestError(run.sentence)
    kept = [
        (c.epoch, name, v.tobytes()) for c in run.checkpoints() for name, v in c.params().items()
    ]
    arrays = run.series() | (run.params() or {}) if run.done else {}
    held = [(name, value.tobytes()) for name, value in arrays.items()]
    said = msgspec.structs.replace(run, host=None, folder=Path())
    return said, run.task(), run.notes(), run.provenance(), held, kept


def clocks(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """Clocks of another time, and clocks that jump while a run is done."""
    expected = undisturbed(ENGINE)
    cases: list[Callable[[], Outcome]] = []
    for number in range(count):
        root, seed = folder / f"clock {number}", rng.randrange(10**9)
        cases.append(
            partial(jumped, root, seed, expected) if number % 2 else partial(left, root, seed)
        )
    yield from in_children(cases)


def far(rng: random.Random) -> float:
    """Seconds by which a clock is off, up to a year."""
    return rng.choice((-1, 1)) * YEAR ** rng.uniform(0.2, 1)


def left(root: Path, seed: int) -> Outcome:
    """A process dies, and its lease bears a time of another clock: the run is free."""
    store = Store.create(root)
    key = store.add(engines.tasks()[ENGINE], 0, "torture/clock:quick")
    store.index.lease(key, "dead")
    dead = {"pid": 2**22 + 1, "heartbeat": time.time() + far(random.Random(seed))}
    store.index.change(key, "dead", **dead)
    return "free" if store.lease(key) is not None else "hung"


def jumped(root: Path, seed: int, expected: Bits) -> Outcome:
    """Every look at the clock may find it set back or forward; the runs are those of a calm one,
    and took no negative time."""
    rng, real, off = random.Random(seed), time.time, [0.0]

    def now() -> float:
        if rng.random() < 0.1:
            off[0] = far(rng)
        return real() + off[0]

    time.time = now
    try:
        e = engines.experiment_of(ENGINE)
        engines.run(e, root)
        store = Store.open(root)
        if others := differing(bits(store, e), expected):
            return bad("lost", f"clock {seed}: {others}")
        sane = all(0 <= run.seconds < 600 and run.status == "finished" for run in store.runs())
        return "jumped: the same bits" if sane else bad("silent", str(store.runs()))
    finally:
        time.time = real
