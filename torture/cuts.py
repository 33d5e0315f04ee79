"""Every way to cut a small run short, for every engine: what goes on must end with the same bits.

    python torture/cuts.py                  every case
    python torture/cuts.py flow "JAX"       those whose names begin so
    python torture/cuts.py --write          the rows of docs/reliability.md too

Nothing is left to chance. A run saves itself after every epoch. It is cut at every save: before it,
so that what was done since the last one is lost, and after it; with the files that a kill −9 leaves
in between (a draft, an older one not yet removed); then at every save in a row; then twice at
random. What is restored may lie anywhere in memory, as long as its numbers are aligned. And it may
be done at any pace, since how many epochs an engine is asked for at once depends on the time they
take. The bits of parameters, series and of the last state (tally, optimizer's memory, halts) are
compared with those of a run that was not cut, and those that differ are named.
"""

import argparse
import importlib.util
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tables import source_of_this, write

import flattest as ft
from flattest.files import read_tensors
from flattest.training import checkpoint
from flattest.training.algorithms import StepChange
from flattest.training.checkpoint import Checkpoints
from flattest.training.run import Run

Case = Callable[..., Run]
ENDLESS = (
    1e9  # seconds: a pace at which an engine is asked for all epochs to the next point at once
)


class Cut(BaseException):
    """As kill −9: nothing may be saved on the way out."""


def trained(model: Any, phases: Any, data: Any = None, **settings: Any) -> Case:
    data = ft.xor(10, 5, seed=1) if data is None else data
    log = ft.Log(points=8, measures=("training", "sharpness", "norms", "neurons"))
    return partial(ft.train, model, data, phases, **{"log": log, "seed": 3, **settings})


def kernels(dtype: str) -> dict[str, Case]:
    """The fused engine."""
    sam = partial(ft.sam, 0.02, 0.1)
    noisy = sam(epochs=7, label_noise=0.1, warmup=30), ft.sgd(0.02, epochs=6, weight_decay=0.01)
    small, both = sam(epochs=9), {"dtype": dtype, "backend": "fused"}
    made = {
        "plain, stopped": (ft.MLP(8), (ft.sgd(0.05, epochs=300, stop_loss=0.05), small)),
        "noise, decay": (ft.MLP(8, bias=True, output_bias=True), noisy),
        "pattern kept": (ft.MLP(8, bias=True), sam(epochs=12, pattern="kept")),
        "step change": (
            ft.MLP(8, bias=True),
            ft.gd(0.05, epochs=40, step_change=StepChange(0.6, 0.3)),
        ),
        "diverges": (ft.MLP(8), ft.sgd(0.6, epochs=12)),
        "micro-batches": (ft.MLP(8, bias=True), sam(5, micro_batch=2, epochs=12, replacement=True)),
        "leaky, projection": (ft.MLP(8, activation="leaky_relu:0.1"), sam(epochs=12, project=1.0)),
        "gelu": (ft.MLP(8, activation="gelu"), small),
        "three layers": (ft.MLP(8, depth=3, bias=True), noisy),
        "Sim-LN": (ft.MLP(8, bias=True, norm="sim_ln"), noisy),
        "Sim-BN": (ft.MLP(8, bias=True, norm="sim_bn"), noisy),
        "Sim-BN, batches": (ft.MLP(8, norm="sim_bn"), ft.sgd(0.02, batch=4, epochs=12)),
    }
    return {f"kernels {dtype} {name}": trained(*of, **both) for name, of in made.items()}


def jaxes(dtype: str) -> dict[str, Case]:
    """The JAX engine."""
    import jax
    import jax.numpy as jnp

    def outputs(p: Any, x: Any) -> Any:
        return jnp.tanh(x @ p["z"].T) @ p["b"] + p["a"]

    def begin(d: int, seed: int) -> Any:
        rng = np.random.default_rng(seed)
        return {"z": rng.normal(size=(6, d)), "b": rng.normal(size=6), "a": np.zeros(())}

    def own(params: Any, batch: Any, key: Any) -> Any:
        noise = 0.01 * jax.random.normal(key)
        return {name: p * (1 - 0.01 * noise) for name, p in params.items()}

    net = ft.MLP(8, bias=True)
    made: dict[str, tuple[Any, ...]] = {
        "momentum, cosine": (net, ft.momentum(0.02, batch=4, epochs=10, decay=ft.Cosine())),
        "Adam, then SAM": (
            net,
            (ft.adam(0.02, batch=4, rho=0.1, epochs=6), ft.sam(0.02, 0.1, 4, epochs=6)),
        ),
        "AdamW, stopped": (
            net,
            (ft.adamw(0.02, epochs=300, stop_loss=0.3), ft.adam(0.01, epochs=6)),
        ),
        "GSAM, clip": (net, ft.gsam(0.02, 0.1, 0.2, epochs=10, clip=1.0, label_noise=0.1)),
        "ASAM": (net, ft.asam(0.02, 0.5, 4, epochs=10)),
        "own step": (net, ft.own_step(own, batch=5, epochs=10)),
        "function": (ft.FunctionModel(outputs, begin), ft.adam(0.02, batch=3, epochs=10)),
        "diverges": (net, ft.momentum(0.9, batch=4, epochs=12)),
    }
    if importlib.util.find_spec("optax") is not None:
        import optax

        schedule = optax.cosine_decay_schedule(0.05, 40)
        made["optax"] = net, ft.optax(optax.adam(schedule), batch=4, epochs=10)
    both: dict[str, Any] = {"dtype": dtype, "backend": "jax"}
    return {f"JAX {dtype} {name}": trained(*of, **both) for name, of in made.items()}


def modules(dtype: str) -> dict[str, Case]:
    """PyTorch, by its own optimizers too."""
    import torch
    from torch import nn

    def module(d: int) -> Any:
        return nn.Sequential(nn.Linear(d, 6), nn.Tanh(), nn.Linear(6, 1))

    def of(optimizer: Any, **settings: Any) -> Any:
        return ft.torch_optimizer(lambda params: optimizer(params, **settings), batch=4, epochs=10)

    made = {
        "SAM, noise": ft.sam(0.02, 0.1, 4, micro_batch=2, epochs=10, label_noise=0.1),
        "momentum": (ft.momentum(0.02, batch=4, epochs=6), ft.gsam(0.02, 0.1, 0.2, epochs=5)),
        "Adam, cosine": ft.adam(0.02, batch=4, epochs=10, decay=ft.Cosine()),
        "AdamW, stopped": (ft.adamw(0.05, epochs=200, stop_loss=0.5), ft.sgd(0.01, epochs=4)),
        "diverges": ft.sgd(5.0, epochs=12),
    }
    optimizers = ["NAdam", "RAdam", "ASGD", "Rprop", "RMSprop", "Adagrad", "Adadelta", "Adamax"]
    made |= {name: of(getattr(torch.optim, name), lr=0.02) for name in optimizers}
    both: dict[str, Any] = {"dtype": dtype, "log": ft.Log(points=8, measures=("training",))}
    return {
        f"PyTorch {dtype} {name}": trained(ft.pytorch(module), phases, **both)
        for name, phases in made.items()
    }


def flows() -> dict[str, Case]:
    """Flows along the interpolators, from a network that has been trained to be one."""
    log = ft.Log(points=5, measures=("training",))
    settings: dict[str, Any] = {"log": log, "dtype": "float64"}
    found: dict[str, Case] = {}
    for name, model, n in (
        ("", ft.MLP(20, bias=True), 8),
        (" of few neurons", ft.MLP(5, bias=True, output_bias=True), 6),
        (" of two inputs", ft.MLP(12, bias=True), 5),
    ):
        x = np.random.default_rng(0).normal(size=(n, 2)) if "two" in name else ft.xor(n, 8, 1).x
        data = ft.Dataset(x, np.sign(np.sin(5.0 * np.arange(n) + 1)))
        start = ft.train(model, data, ft.gd(0.05, epochs=60_000, stop_loss=1e-12), **settings)
        for kinks in ("unseen", "seen", "walls"):
            flow = ft.flow(1.0, epochs=8, kinks=kinks)
            found[f"flow {kinks}{name}"] = trained(
                model, flow, data, params=start.params, **settings
            )
    first = ft.gd(0.05, epochs=5000, stop_loss=1e-8)
    for name, net in (
        ("descent, then ", ft.MLP(20, bias=True)),
        ("three layers ", ft.MLP(8, depth=3, bias=True)),
    ):
        two = first, ft.flow(0.1, epochs=5)
        found[f"flow {name}unseen"] = trained(net, two, ft.xor(6, 8, seed=1), **settings)
    return found


def engines() -> dict[str, Callable[[], dict[str, Case]]]:
    """What makes the cases of each engine, whose names begin with the engine's."""
    found: dict[str, Callable[[], dict[str, Case]]] = {}
    dtypes = ("float32", "float64")
    for engine, made in (("kernels", kernels), ("JAX", jaxes), ("PyTorch", modules)):
        if engine != "PyTorch" or importlib.util.find_spec("torch") is not None:
            found |= {f"{engine} {dtype}": partial(made, dtype) for dtype in dtypes}
    return found | {"flow": flows}


def asked_for(words: list[str]) -> Iterator[tuple[str, dict[str, Case], int]]:
    """By engine the cases whose names begin with one of the words, and how many there are."""
    for engine, made in engines().items():
        if any(word.startswith(engine) or engine.startswith(word) for word in words):
            every = made()
            chosen = {name: every[name] for name in every if name.startswith(tuple(words))}
            if chosen:
                yield engine, chosen, len(every)


def last_state(folder: Path) -> dict[str, bytes]:
    """What the newest checkpoint says, but for the time it took."""
    arrays, metadata = read_tensors(max(folder.glob("*.safetensors")))
    standing = json.loads(metadata["standing"])
    held = {f"state {name}": value.tobytes() for name, value in arrays.items()}
    return held | {f"state {k}": repr(v).encode() for k, v in standing["counters"].items()}


def told(run: Run, folder: Path) -> dict[str, bytes]:
    """All that a run ended with, by name."""
    said = (run.status, run.step, run.epoch, run.sentence)
    held = {f"series {name}": np.ascontiguousarray(v).tobytes() for name, v in run.series.items()}
    held |= {f"params {name}": np.asarray(v).tobytes() for name, v in run.params.items()}
    return held | {"said": repr(said).encode()} | last_state(folder)


def differing(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    return sorted(k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k))


class Saves:
    """Checkpoints that are written whenever there is one to write, and cut a run at some of them.

    at: the numbers of the saves, counted in this process, at which it is cut; early: before the
    write, else after it; remains: whether what is superseded is left there, and a draft.
    """

    def __init__(self, at: set[int], early: bool = False, remains: bool = False) -> None:
        self.at, self.early, self.remains, self.count = at, early, remains, 0
        self._save = Checkpoints.save

    def __enter__(self) -> "Saves":
        def save(own: Checkpoints, *state: Any) -> None:
            self.count += 1
            cut = self.count in self.at
            if cut and self.early:
                raise Cut
            before = {p: p.read_bytes() for p in own.folder.glob("*")} if cut else {}
            self._save(own, *state)
            if cut:
                if self.remains:
                    for path, data in before.items():
                        path.write_bytes(data)
                    (own.folder / ".000009-ab.safetensors.0123.tmp").write_bytes(b"half")
                raise Cut

        Checkpoints.save = save  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Checkpoints.save = self._save  # type: ignore[method-assign]


class moved:
    """Arrays that are restored begin at any multiple of their numbers' size."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.before = rng, checkpoint.tensors_of

    def __enter__(self) -> None:
        def elsewhere(data: bytes) -> Any:
            arrays, metadata = self.before(data)
            return {name: self.shifted(value) for name, value in arrays.items()}, metadata

        checkpoint.tensors_of = elsewhere

    def __exit__(self, *_: object) -> None:
        checkpoint.tensors_of = self.before

    def shifted(self, value: np.ndarray) -> np.ndarray:
        raw = np.zeros(value.nbytes + 128, np.uint8)
        size = value.dtype.itemsize
        begin = -raw.ctypes.data % 64 + size * self.rng.randrange(64 // size)
        found = raw[begin : begin + value.nbytes].view(value.dtype).reshape(value.shape)
        found[...] = value
        return found


def tried(
    case: Case, folder: Path, rng: random.Random, most: int
) -> Iterator[tuple[str, list[str]]]:
    """Every way to cut the run: in words, and what differs in the end."""
    often = {"checkpoint_seconds": 0.0, "progress_seconds": 0.0}
    number = iter(range(10**9))

    def place() -> Path:
        return folder / str(next(number))

    whole = place()
    with Saves(set()) as seen:
        expected = told(case(checkpoint=whole, **often), whole)

    def gone_on(at: Path, way: str) -> tuple[str, list[str]]:
        with moved(rng):
            run = case(checkpoint=at, **often)
        found = told(run, at), run.notes
        shutil.rmtree(at)
        return way, differing(found[0], expected) + [n for n in found[1] if "passed over" in n]

    for pace in (0.001, 0.01, ENDLESS):
        at = place()
        run = case(checkpoint=at, checkpoint_seconds=ENDLESS, progress_seconds=pace)
        yield f"pace {pace:g}", differing(told(run, at), expected)

    def cut(at: Path, where: set[int], **how: Any) -> bool:
        """Whether the run was cut; else it came to its end."""
        with Saves(where, **how), moved(rng):
            try:
                case(checkpoint=at, **often)
            except Cut:
                return True
        return False

    def surely_cut(at: Path, k: int, **how: Any) -> None:
        if not cut(at, {k}, **how):
            raise AssertionError(f"A run with {seen.count} saves was not cut at save {k}.")

    if not seen.count:
        raise AssertionError("A run without a save cannot be cut.")
    chosen = sorted(rng.sample(range(1, seen.count + 1), min(most, seen.count)))
    for k in chosen:
        for how in ({"early": True}, {}, {"remains": True}):
            at = place()
            surely_cut(at, k, **how)
            yield gone_on(at, f"save {k} {how}")
    at = place()
    surely_cut(at, 1)
    for _ in range(seen.count - 1):
        cut(at, {1})
    yield gone_on(at, "every save")
    for _ in range(3):
        at = place()
        surely_cut(at, rng.randrange(1, seen.count + 1))
        # Of what is left, which may have fewer saves.
        cut(at, {rng.randrange(1, seen.count + 1)})
        yield gone_on(at, "two random saves")


BEGIN = "<!-- cuts -->"
HEAD = """\
| engine | runs | saves cut | cuts and paces | other bits | seconds | commit |
| --- | ---: | --- | ---: | ---: | ---: | --- |
"""


def row(engine: str, runs: str, most: int, ways: Counter[str], seconds: float, source: str) -> str:
    bits = f"{ways['same'] + ways['differ']} | {ways['differ']}"
    return f"| {engine} | {runs} | at most {most} a run | {bits} | {seconds:.0f} | {source} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=[""], help="how the cases' names begin")
    parser.add_argument("--most", type=int, default=30, help="saves at which a run is cut")
    parser.add_argument("--write", action="store_true", help="write docs/reliability.md")
    return parser.parse_args()


def counted(name: str, case: Case, most: int) -> Counter[str]:
    """How many ways to cut a run end the same, and how many differ; those are told."""
    began, ways = time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="cuts-") as folder:
        for way, others in tried(case, Path(folder), random.Random(name), most):
            ways["differ" if others else "same"] += 1
            if others:
                print(f"{name}: {way}: {', '.join(others)}", flush=True)
    seconds = time.monotonic() - began
    print(f"{name}: {ways['same']} same, {ways['differ']} differ, {seconds:.1f} s", flush=True)
    return ways


def main() -> int:
    asked, bad = arguments(), 0
    for engine, chosen, there_are in asked_for(asked.names):
        source = source_of_this()  # as it is now: it may be edited before the end
        began, ways = time.monotonic(), Counter[str]()
        for name, case in chosen.items():
            ways += counted(name, case, asked.most)
        runs = str(there_are) if len(chosen) == there_are else f"{len(chosen)} of {there_are}"
        line = row(engine, runs, asked.most, ways, time.monotonic() - began, source)
        print(line, flush=True)
        bad += ways["differ"]
        if asked.write:
            write({engine: line}, BEGIN, HEAD, engines())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
