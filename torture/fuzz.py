"""Odd commands, specs and calls: each ends with a value or with a sentence."""

import contextlib
import io
import os
import random
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from children import PATIENCE, Outcome, bad, in_children
from values import DOORS as VALUES

import flattest as ft
from flattest.cli._dispatch import main
from flattest.errors import FlattestError
from flattest.experiments.registry import experiment, read_experiment
from flattest.files import write_json
from flattest.runs.run import run_experiments
from flattest.runs.store import Store

HONEST_WORK = 1.0  # seconds, after which a command hears Ctrl-C
CODES = (0, 1, 2, 130)

# Command lines that make sense, of which words are lost, doubled or replaced.
LINES = """status
status fig4b --check
status --json --store store
show x@0
list
list fig4b --json
list vardhan2026/* --full
run fig4b --quick --seeds 1 --workers 1
run nowhere.json --store store
run mulayoff2021/sweep --seeds 3:8 --workers 1
report --store store --page page.html
export fig4b --format csv --out out.csv
summary fig4b
construct memorizer --n 8 --d 4 --depth 2 --seed 0 --out net.safetensors
construct xor_generalizer --n 8 --d 4
certify net.safetensors --distribution xor --n 8 --d 4 --seed 0
measure net.safetensors --distribution xor --n 8 --d 4
verify lemma-a1 --fast
plot fig4b --out figure.png
interpolate data.npz --p 1
flattest --distribution xor --n 6 --d 3
range --distribution xor --n 5 --d 2
judge mine.py:setup --workers 1
sweep mine.py:setup --x n=6,8 --y width=10,20 --workers 1
serve --port 0
table1 --json
attack lemma-a1
help runs
--version
nonsense""".splitlines()
WORDS = """--store --json --seeds --full --quick --n --d --depth --width --seed --check --out --help
0 -1 1 3 2 10000000000000 nan 1e400 -inf fig4b fig* * x@0 @ /dev/null . nowhere.json memorizer
🦄 --workers [ mine.py:setup --page --format csv --port 99999 --tol store ../.. --p 0.5 --x n= 8:3
--distribution circle xor --activation relu --model --set width=0 -- -h""".split()  # noqa: SIM905
WORDS += ["", "\x1b[31m", "\udcff", "a" * 5000]


def fuzzed(rng: random.Random, words: list[str]) -> list[str]:
    """The words with up to three accidents."""
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(words) + 1)
        accident = rng.choice(("lost", "doubled", "replaced", "added"))
        new = {"lost": [], "doubled": words[at : at + 1] * 2}.get(accident, [rng.choice(WORDS)])
        words = [*words[:at], *new, *words[at + (accident != "added") :]]
    return words


def command_lines(rng: random.Random, count: int) -> list[list[str]]:
    return [fuzzed(rng, rng.choice(LINES).split()) for _ in range(count)]


def commands(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """Command lines with accidents, on a folder with little in it."""
    os.chdir(folder)
    made = command_lines(rng, count)
    yield from in_children([partial(command, words) for words in made])


def command(words: list[str]) -> Outcome:
    """A command line in this process: it ends with a code, and never with a traceback."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            with interrupted_after(HONEST_WORK):
                code = main(words)
        except SystemExit as stop:
            code = stop.code
        except BaseException:
            return bad("traceback", f"{words} {traceback.format_exc()}")
    if has_traceback(errors.getvalue()) or code not in CODES:
        return bad("traceback", f"{words} {code} {errors.getvalue()}")
    return f"code {code}"


def has_traceback(errors: str) -> bool:
    """Apart from those of a Ctrl-C that came in a callback of JAX's, which loses it."""
    return "Traceback" in re.sub(r"Exception ignored in.*\nTraceback", "", errors)


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Ctrl-C, until it is heard."""
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, seconds, 5.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def processes(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """The same as real processes, which start from nothing."""
    for words in command_lines(rng, count):
        process = subprocess.Popen(
            [sys.executable, "-m", "flattest", *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        yield process_ended(process, words)


def process_ended(process: subprocess.Popen, words: list[str]) -> Outcome:
    try:
        try:
            errors = process.communicate(timeout=10)[1]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            errors = process.communicate(timeout=PATIENCE)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return bad("hung", str(words))
    said = errors.decode(errors="replace")
    # A Python that is on its way out leaves Ctrl-C to the system; a shell calls that 130, too.
    code = 130 if process.returncode == -signal.SIGINT else process.returncode
    if has_traceback(said) or code not in CODES:
        return bad("traceback", f"{words} {code} {said}")
    return f"code {code}"


ODD = (None, True, -1, 0, 2**63, 1e308, "", "x", "\x1b", [], {}, [[1]], {"type": "mlp"}, 1.5, -1e-9)
SOUND = ("fig1a", "fig4b", "fig6b", "mulayoff2021/sweep", "vardhan2026/fig4a")


def specs(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """A spec file in which a value or two are others: it is refused, or sound and can be run."""
    os.chdir(folder)
    plain = [msgspec.json.encode(experiment(name)) for name in SOUND]
    cases = []
    for number in range(count):
        spec = msgspec.json.decode(rng.choice(plain))
        for _ in range(rng.choice((1, 1, 2))):
            replace_one(rng, spec)
        cases.append(partial(asked, folder / f"{number}", spec, number % 4 == 0))
    yield from in_children(cases)


def replace_one(rng: random.Random, spec: dict[str, Any]) -> None:
    at, places = spec, []
    while isinstance(at, dict | list) and at and (not places or rng.random() < 0.9):
        key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))  # type: ignore[arg-type]
        places.append((at, key))
        at = at[key]
    holder, key = places[-1]
    if isinstance(holder, dict) and rng.random() < 0.1:
        del holder[key]
    else:
        near = [at * 2, at + 1, at / 3] if type(at) in (int, float) else []
        holder[key] = rng.choice([*ODD, *near])


def asked(folder: Path, spec: object, to_run: bool) -> Outcome:
    """Read, and some of those that can be read run for a while."""
    path = folder.with_suffix(".json")
    write_json(path, spec)
    try:
        e = read_experiment(path)
        if not to_run:
            return "accepted"
        store = Store.create(folder)
        with contextlib.suppress(KeyboardInterrupt), interrupted_after(HONEST_WORK):
            run_experiments([e], "quick", store, seeds=1, workers=1)
    except FlattestError:
        return "refused"
    failed = [run for run in store.runs() if run.status == "failed"]
    for run in failed:
        last = (run.folder / "failure.txt").read_text().strip().splitlines()[-1]
        if "FlattestError" not in last:
            return bad("traceback", f"{path.read_text()} {last}")
    return "failed in a sentence" if failed else "run"


def calls(rng: random.Random, folder: Path, count: int) -> Iterator[Outcome]:
    """Calls of the library: in one of four a value is held against a slow reference, in the others
    an argument or two are odd."""
    doors = sound_calls()
    cases: list[Callable[[], Outcome]] = []
    for number in range(count):
        if number % 4 == 0:
            name = rng.choice(sorted(VALUES))
            cases.append(partial(compared, name, rng.randrange(10**9)))
        else:
            cases.append(partial(called, rng.randrange(len(doors)), rng.randrange(10**9)))
    yield from in_children(cases)


def compared(name: str, seed: int) -> Outcome:
    right = VALUES[name](np.random.default_rng(seed))
    return "right values" if right else bad("silent", f"{name} {seed}")


def sound_calls() -> list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    """Functions with arguments that make sense."""
    data, model = ft.xor(8, 4, 0), ft.MLP(3, bias=True)
    params = {name: np.array(value) for name, value in model.init(4, 0).items()}
    net, phase = (model, params, data), ft.sgd(0.1, epochs=1)
    quick = {"seed": 0, "test_size": 10, "log": ft.Log(points=1)}
    return [
        (ft.MLP, (3,), {"depth": 2, "bias": True, "activation": "relu", "norm": None}),
        (ft.xor, (8, 4, 0), {}),
        (ft.circle, (8, 0), {}),
        (ft.univariate, (8, 0), {}),
        (ft.Dataset, (data.x, data.y), {}),
        (ft.Dataset, (data.x, data.y), {"test": 0.25}),
        (ft.trace, net, {"loss": "mse", "rtol": 0.1, "seed": 0}),
        (ft.top_eigenvalue, net, {"tol": 1e-6}),
        (ft.top_eigenvalues, (*net, 2), {}),
        (ft.hutchinson, net, {"most_products": 8, "rtol": 0.5, "seed": 0}),
        (ft.xtrace, net, {"most_products": 12, "rtol": 0.5, "seed": 0}),
        (ft.spectrum, net, {"probes": 2, "steps": 4, "seed": 0}),
        (ft.measure, net, {}),
        (ft.lower_bound, (model, data), {}),
        (ft.certify, net, {}),
        (ft.memorizer, (data,), {"depth": 2}),
        (ft.flattest_rescaling, net, {}),
        (ft.flattest_interpolator, (data.x, data.y, 1.0), {}),
        (ft.train, (model, data, phase), quick),
        (ft.sam, (0.1, 0.05), {"epochs": 1, "batch": 1}),
        (ft.Log, (5,), {"snapshots": 2, "measures": ("training",)}),
        (ft.flattest_network, (ft.MLP(3), ft.Dataset(data.x[:4], data.y[:4])), {}),
    ]


def called(door: int, seed: int) -> Outcome:
    """One call with one or two odd arguments."""
    function, values, named = sound_calls()[door]
    rng, given = random.Random(seed), dict(enumerate(values)) | named
    for name in rng.sample(list(given), min(len(given), rng.choice((1, 1, 2)))):
        given[name] = rng.choice([*ODD, *odd_arrays(), *values])
    positional = [given.pop(at) for at in range(len(values))]
    try:
        with interrupted_after(10 * HONEST_WORK):
            function(*positional, **given)
    except FlattestError:
        return "refused"
    except KeyboardInterrupt:
        return "long"
    except BaseException:
        why = f"{function.__name__} {positional!r:.300} {given!r:.200} {traceback.format_exc()}"
        return bad("traceback", why)
    return "a value"


def odd_arrays() -> list[Any]:
    return [
        np.nan,
        np.inf,
        np.zeros(3),
        np.zeros((0, 4)),
        np.full((8, 4), np.nan),
        np.full((8, 4), 1e200),
        np.array("x"),
        np.array([None, {}], dtype=object),
        np.zeros((2, 2, 2)),
        np.ones((8, 4), dtype=complex),
        {"W1": 1.0},
        object(),
        len,
        range(3),
        b"x",
    ]
