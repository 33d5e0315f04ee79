"""What must never happen, tried many times: a run lost, damage unseen, a hang, a traceback.

    make torture                          every part, within half an hour
    python torture/torture.py flips       one part
    python torture/torture.py --share 0.1 a tenth of every count
    python torture/torture.py --write     the table of docs/reliability.md too

Each part draws its cases from a seed of its own. Commands and calls are made in forked children of
a process that has everything imported; those that hang are killed and counted.
"""

import argparse
import contextlib
import io
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

import msgspec
import numpy as np

import flattest as ft
from flattest.cli._dispatch import main
from flattest.errors import FlattestError
from flattest.experiments.expectations import AtMost
from flattest.experiments.experiment import Experiment, Variant
from flattest.experiments.registry import experiment, read_experiment
from flattest.experiments.training import Training
from flattest.files import StoreError, write_json
from flattest.runs import index
from flattest.runs.provenance import commit
from flattest.runs.run import run_experiments
from flattest.runs.store import Store

LIMIT = 30 * 60.0  # seconds for everything
PATIENCE = 120.0  # seconds for one case
BATCH = 25  # cases in one child
DOCUMENT = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- torture -->", "<!-- end -->"
BAD = ("lost", "silent", "hung", "traceback")
Outcome = str
DETAILS = os.environ.get("TORTURE_DETAILS")  # a file for what calls raise


def forked(case: Callable[[], Outcome]) -> Outcome:
    """The outcome of one case in a child process."""
    return next(in_children([case]))


def in_children(cases: Sequence[Callable[[], Outcome]]) -> Iterator[Outcome]:
    """The outcomes of cases, many in one child; after one that hangs or dies comes a new child."""
    done = 0
    while done < len(cases):
        child, pipe = _child(cases[done : done + BATCH])
        for _ in cases[done : done + BATCH]:
            ready = select.select([pipe], [], [], PATIENCE)[0]
            line = pipe.readline().strip() if ready else "hung"
            yield line or "traceback"
            done += 1
            if not ready or not line:
                break
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pipe.close()


def _child(cases: Sequence[Callable[[], Outcome]]) -> tuple[int, TextIO]:
    """A child process that writes a line for each case."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX has not started its threads in this process
        child = os.fork()
    if child:
        os.close(write)
        return child, os.fdopen(read)
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    for case in cases:
        outcome = "traceback"
        with contextlib.suppress(BaseException):
            outcome = case()
        os.write(write, f"{outcome}\n".encode())
    os._exit(0)


def command(*arguments: str) -> Outcome:
    """A command line in this process: it ends with a code, and never with a traceback."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = stop.code
        except BaseException:
            return "traceback"
    return "traceback" if "Traceback" in errors.getvalue() else f"code {code}"


# Small runs of every engine


def trainings() -> dict[str, Training]:
    common = {"distribution": ft.Xor(6), "n": 12, "test_size": 16, "log": ft.Log(points=6)}
    sam = (ft.sam(0.02, 0.1, epochs=300),)
    models = {
        "two-layer": ft.MLP(8, bias=True),
        "Sim-LN": ft.MLP(8, bias=True, norm="sim_ln"),
        "Sim-BN": ft.MLP(8, bias=True, norm="sim_bn"),
        "three-layer": ft.MLP(8, depth=3, bias=True),
    }
    fused = {n: Training(model=m, phases=sam, **common) for n, m in models.items()}
    jax = Training(model=ft.MLP(8, bias=True), phases=sam, backend="jax", **common)
    return fused | {"JAX": jax}


def experiment_of(name: str, task: Training) -> Experiment:
    variant = Variant(task, 1, (AtMost(series="train_loss", value=1e9),))
    return Experiment(
        name=f"torture/{name}", figure="none", statement="It ends.", quick=variant, full=variant
    )


def bits(store: Store, e: Experiment) -> bytes | None:
    run = store.run_of(e.quick.task, 0)
    if run is None or not run.done:
        return None
    held = run.series() | (run.params() or {})
    return b"".join(name.encode() + np.ascontiguousarray(v).tobytes() for name, v in held.items())


def kills(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """The runner is killed at a random moment of a run, of each engine in turn, and run again:
    the result has the bits of a run that nobody disturbed."""
    cases = [_calm(experiment_of(name, task), folder) for name, task in trainings().items()]
    for number in range(count):
        e, expected, length = cases[number % len(cases)]
        root = folder / f"kill {number}"
        child, pipe = _child([lambda e=e, root=root: _again(e, root, None)])
        time.sleep(rng.uniform(0, 1.1 * length))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pipe.close()
        yield forked(lambda e=e, root=root, expected=expected: _again(e, root, expected))


def _calm(e: Experiment, folder: Path) -> tuple[Experiment, bytes | None, float]:
    """The experiment, the bits of an undisturbed run of it, and how long that takes."""
    root, began = folder / f"calm {e.panel}", time.monotonic()
    forked(lambda: _again(e, root, None))
    return e, bits(Store.create(root), e), time.monotonic() - began


def _again(e: Experiment, root: Path, expected: bytes | None) -> Outcome:
    store = Store.create(root)
    run_experiments([e], "quick", store, workers=1)
    return "resumed to the same bits" if bits(store, e) == expected else "lost"


def disks(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """The disk is full at a size (files cannot grow beyond it) while a store is made and a run is
    done; then it has space again, and the same command ends with the bits of a calm run."""
    e, expected, _ = _calm(experiment_of("disk", trainings()["two-layer"]), folder)
    for number in range(count):
        size = int(200_000 * (number / count) ** 3)
        root = folder / f"disk {number}"

        def full(root=root, size=size) -> Outcome:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            try:
                run_experiments([e], "quick", Store.create(root), workers=1)
            except (StoreError, FlattestError):
                pass
            finally:
                resource.setrlimit(
                    resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                )
            return _again(e, root, expected)

        yield forked(full)


def flips(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """One bit of one file of a store flips. Whoever reads it is told, or reads what was written."""
    e = experiment_of("flip", trainings()["two-layer"])
    _calm(e, folder)
    store = Store.open(folder / f"calm {e.panel}")
    kept = [p for p in store.root.rglob("*") if p.is_file() and p.suffix not in ("", ".txt")]
    kept = [p for p in kept if "-shm" not in p.name and "-wal" not in p.name]
    before = everything(store.root, e)
    for number in range(count):
        path = kept[number % len(kept)]
        whole = path.read_bytes()
        rotten = bytearray(whole)
        rotten[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(rotten)

        def look() -> Outcome:
            try:
                return "harmless" if everything(store.root, e) == before else "silent"
            except FlattestError:
                return "said"

        yield forked(look)
        path.write_bytes(whole)


def everything(root: Path, e: Experiment) -> tuple:
    """All that the store says of the run, every file of it read."""
    (run,) = Store.open(root).check()
    if run.status == "broken":
        raise FlattestError(run.sentence)
    kept = [
        (c.epoch, name, value.tobytes())
        for c in run.checkpoints()
        for name, value in c.params().items()
    ]
    said = msgspec.structs.replace(run, host=None)
    return said, run.task(), run.notes(), run.provenance(), bits(Store.open(root), e), kept


def clocks(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """A process dies, and its lease bears a time of another clock, up to a year off: the run is
    free, within the minute that a lease may be silent."""
    e = experiment_of("clock", trainings()["two-layer"])
    for number in range(count):
        store = Store.create(folder / f"clock {number}")
        key = store.add(e.quick.task, 0, "torture/clock:quick")
        store.index.lease(key, "dead")
        off = rng.choice((-1, 1)) * 10 ** rng.uniform(2, 7.5)
        store.index.change(key, "dead", heartbeat=time.time() + off)
        yield "free" if store.lease(key) is not None else "hung"


NAMES = """status show list run report export summary construct certify measure verify plot
interpolate flattest range judge sweep nonsense""".split()  # noqa: SIM905
WORDS = """--store --json --seeds --full --quick --n --d --depth --width --seed --check --out --help
0 -1 1 3 10000000000000 nan 1e400 fig4b fig* * x@0 @ /dev/null . nowhere.json memorizer generalizer
🦄 --workers [ mine.py:setup --page --format csv""".split()  # noqa: SIM905
WORDS += ["", "\0", "\x1b[31m"]


def commands(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """Command lines of random words, on an empty folder."""
    os.chdir(folder)
    made = []
    for _ in range(count):
        words = [rng.choice(NAMES), *rng.choices(WORDS, k=rng.randrange(5))]
        if words[0] in ("run", "judge", "sweep", "verify") and set(words) & {"*", "fig*", "fig4b"}:
            words = ["list", *words[1:]]  # hours of honest work
        if words[0] == "verify":
            words[0] = "status"
        made.append(words)
    yield from in_children([lambda words=words: command(*words) for words in made])


def processes(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """The same as real processes, which start from nothing."""
    for _ in range(count):
        words = [rng.choice(("status", "show", "list", "export", "construct", "nonsense"))]
        words += [w for w in rng.choices(WORDS, k=rng.randrange(4)) if "\0" not in w]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "flattest.cli._dispatch", *words],
                cwd=folder,
                capture_output=True,
                timeout=PATIENCE,
                env=os.environ | {"PYTHONPATH": str(Path(ft.__file__).parents[1])},
            )
        except subprocess.TimeoutExpired:
            yield "hung"
            continue
        yield "traceback" if b"Traceback" in done.stderr else f"code {done.returncode}"


ODD = (None, True, -1, 0, 2**63, 1e308, "", "x", "\x1b", [], {}, [[1]], {"type": "mlp"}, 1.5, -1e-9)


def specs(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """A spec file in which one value is another: run, it is refused or it is a sound experiment."""
    made = []
    sound = msgspec.json.decode(msgspec.json.encode(experiment("fig1a")))
    for _ in range(count):
        spec = msgspec.json.decode(msgspec.json.encode(sound))
        at, where = spec, []
        while isinstance(at, dict | list) and at and (not where or rng.random() < 0.8):
            keys = list(at) if isinstance(at, dict) else range(len(at))
            where.append((at, rng.choice(list(keys))))
            at = where[-1][0][where[-1][1]]
        where[-1][0][where[-1][1]] = rng.choice(ODD)
        made.append(spec)
    yield from in_children([lambda spec=spec: _read(folder, spec) for spec in made])


def _read(folder: Path, spec: object) -> Outcome:
    write_json(folder / "mine.json", spec)
    try:
        read_experiment(folder / "mine.json")
    except FlattestError:
        return "refused"
    return "accepted"


def calls(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """Calls of the library with odd arguments: a value, or a FlattestError. Traces of small
    networks are held against second differences of the loss."""
    data = ft.xor(8, 4, 0)
    model = ft.MLP(3, bias=True)
    params = model.init(4, 0)
    odd = (*ODD, np.nan, np.zeros(3), np.array("x"), object(), data, model, params, len)
    doors = (
        lambda a, b: ft.MLP(a, depth=b),
        lambda a, b: ft.MLP(3, activation=a, norm=b),
        lambda a, b: ft.xor(a, 4, b),
        lambda a, b: ft.Dataset(a, b),
        lambda a, b: ft.trace(a, params, b),
        lambda a, b: ft.top_eigenvalue(model, a, data, tol=b),
        lambda a, b: ft.measure(model, a, b),
        lambda a, b: ft.spectrum(a, params, b),
        lambda a, b: ft.memorizer(data, depth=a, width=b),
        lambda a, b: ft.flattest_rescaling(a, params, b),
        lambda a, b: ft.train(model, a, ft.sgd(0.1, epochs=1), seed=b),
        lambda a, b: ft.sam(a, b, epochs=1),
    )
    made: list[Callable[[], Outcome]] = []
    for number in range(count):
        door, a, b = rng.choice(doors), rng.choice(odd), rng.choice(odd)
        if number % 20 == 0:
            made.append(partial(_same_trace, rng.randrange(10**6)))
        else:
            made.append(partial(_called, door, a, b))
    yield from in_children(made)


def _called(door: Callable, a: object, b: object) -> Outcome:
    try:
        door(a, b)
    except FlattestError:
        return "refused"
    except Exception:
        if DETAILS:
            last = traceback.format_exc().strip().splitlines()[-1]
            with open(DETAILS, "a") as file:
                file.write(f"line {door.__code__.co_firstlineno} {a!r:.60} {b!r:.60}: {last}\n")
        return "traceback"
    return "a value"


def _same_trace(seed: int) -> Outcome:
    """Tr ∇²L against second differences of L along every weight."""
    data, model = ft.xor(8, 4, seed), ft.MLP(3, bias=True, activation="softplus")
    params = {name: np.array(v) for name, v in model.init(4, seed).items()}
    exact, sum_, h = ft.trace(model, params, data), 0.0, 1e-4

    def loss() -> float:
        return float(np.mean((np.asarray(model.apply(params, data.x, data.x)) - data.y) ** 2))

    for value in params.values():
        for at in np.ndindex(value.shape):
            kept, found = value[at], []
            for step in (-h, 0.0, h):
                value[at] = kept + step
                found.append(loss())
            value[at] = kept
            sum_ += (found[0] - 2 * found[1] + found[2]) / h**2
    return "right value" if abs(sum_ - exact) <= 1e-5 * max(1.0, abs(exact)) else "silent"


PARTS: dict[str, tuple[Callable[[random.Random, Path, int], Iterator[Outcome]], int]] = {
    "kills": (kills, 60),
    "disks": (disks, 18),
    "flips": (flips, 500),
    "clocks": (clocks, 50),
    "commands": (commands, 2000),
    "processes": (processes, 100),
    "specs": (specs, 1000),
    "calls": (calls, 2000),
}


def tortured(name: str, share: float, until: float) -> tuple[int, Counter, float]:
    """How many cases of a part there were, how they ended, and the seconds they took."""
    part, count = PARTS[name]
    home, began, outcomes = os.getcwd(), time.monotonic(), Counter()
    with tempfile.TemporaryDirectory(prefix=f"torture-{name}-") as folder:
        try:
            for outcome in part(random.Random(name), Path(folder), max(1, round(share * count))):
                outcomes[outcome] += 1
                if time.monotonic() > until:
                    break
        finally:
            os.chdir(home)
    return sum(outcomes.values()), outcomes, time.monotonic() - began


def row(name: str, count: int, outcomes: Counter, seconds: float) -> str:
    ends = ", ".join(f"{n} {what}" for what, n in outcomes.most_common() if what not in BAD)
    bad = " | ".join(str(outcomes[what]) for what in BAD)
    return f"| {name} | {count} | {ends} | {bad} | {seconds:.0f} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--share", type=float, default=1.0, help="of every count")
    parser.add_argument("--write", action="store_true", help="write docs/reliability.md")
    return parser.parse_args()


def everything_tried() -> int:
    asked, end, lines, bad = arguments(), time.monotonic() + LIMIT, [], 0
    index.STALE_AFTER = 0.5  # a lease of the dead is free at once
    for name in asked.parts or PARTS:
        count, outcomes, seconds = tortured(name, asked.share, end)
        lines.append(row(name, count, outcomes, seconds))
        bad += sum(outcomes[what] for what in BAD)
        print(lines[-1], flush=True)
    if asked.write:
        head = f"Run at commit {commit(Path(ft.__file__))[:12] or 'unknown'}:\n\n"
        head += "| part | cases | ended | lost | silent | hung | tracebacks | seconds |\n"
        head += "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |\n"
        before, _, rest = DOCUMENT.read_text().partition(BEGIN)
        table = "\n".join(lines)
        DOCUMENT.write_text(f"{before}{BEGIN}\n{head}{table}\n{END}{rest.partition(END)[2]}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(everything_tried())
