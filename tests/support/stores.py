"""Small stores for the tests of the page: finished, damaged and really trained runs, and questions
of one's own whose runs were done before they were asked."""

import json

import numpy as np

import flattest as ft
from flattest.experiments.registry import experiment
from flattest.experiments.training import Training
from flattest.files import write_sealed
from flattest.lab.setup import experiments_of
from flattest.lab.sweep import axis, cells
from flattest.problem.distributions import Xor
from flattest.problem.models import MLP
from flattest.runs.plan import Job
from flattest.runs.work import work
from flattest.training.algorithms import sam
from flattest.training.log import Log
from flattest.training.run import Run


def curves(epochs=50, value=0.5):
    epoch = np.arange(epochs, dtype=float)
    names = ("train_loss", "train_error", "test_loss", "test_error", "sharpness", "bound")
    return {"epoch": epoch} | {name: np.full(epochs, value) for name in names}


def finished(store, name, series, seed=0, variant="quick"):
    """A finished run of an experiment with the series given; returns its key."""
    label = f"{name}:quick" if variant == "quick" else name
    key = store.add(getattr(experiment(name), variant).task, seed, label)
    with store.lease(key) as lease:
        lease.finish(Run(series=series))
    return key


def rot(path):
    """Zero the file in place: its size stays."""
    path.write_bytes(b"\x00" * path.stat().st_size)


def trained(store, name="table1/bias-algorithm", seed=0):
    """A network that was really trained, with checkpoints, though only for a moment."""
    task = Training(
        distribution=Xor(10),
        n=40,
        model=MLP(20, bias=True),
        phases=(sam(0.01, 0.05, epochs=60),),
        log=Log(points=12, snapshots=5),
        test_size=200,
    )
    key = store.add(task, seed, f"{name}:trial")
    work(store.root, Job(task, seed, key, f"{name}:trial"))
    return store.run(key)


def hostile(store):
    """Runs damaged in every way we thought of: what is wrong → key."""
    name = "wen2023/fig1a"
    keys = {}

    def damage(what, seed, harm, series=None):
        keys[what] = finished(store, name, series or curves(), seed)
        harm(store.folder(keys[what]))

    def truncate(folder):
        path = folder / "series.npz"
        path.write_bytes(path.read_bytes()[:40])

    def newer(folder):
        path = folder / "spec.json"
        write_sealed(path, json.loads(path.read_text()) | {"schema": 99})

    damage("truncated series", 1, truncate)
    damage("scrambled series", 2, lambda folder: rot(folder / "series.npz"))
    damage("missing series", 3, lambda folder: (folder / "series.npz").unlink())
    damage("newer schema", 4, newer)
    damage("series of another shape", 5, lambda _: None, {"epoch": np.zeros((3, 2)), "x": [1]})
    damage("series of another kind", 6, lambda _: None, {"something": np.zeros(3)})
    damage("spec that is not JSON", 7, lambda f: (f / "spec.json").write_text("<script>"))
    damage("missing record", 8, lambda folder: (folder / "record.json").unlink())
    return keys


SETUP = ft.Setup(
    name="tiny",
    distribution=ft.Xor(4),
    n=8,
    model=ft.MLP(20, bias=True),
    algorithm=(ft.sam(0.02, 0.05, epochs=8),),
    log=ft.Log(points=4),
    seeds=2,
    challenges=1,
)
CHALLENGED = {"sharpness": 2.0, "bound": 2.0, "certified": 1.0, "test_error": 0.5}
CHALLENGED |= dict.fromkeys(("start_test_error", "start_sharpness"), np.nan)


def judged(setup, store):
    """Judge a setup whose runs are finished without training."""
    for e in experiments_of(setup, setup).values():
        done(store, e)
    return ft.judge(setup, store)


def swept(setup, store, x="n=6,8", y="width=10,20"):
    for e in cells(setup, axis(x), axis(y), 1).values():
        done(store, e)
    return ft.sweep(setup, x, y, seeds=1, store=store)


def done(store, e):
    for seed in range(e.full.seeds):
        lease = store.lease(store.add(e.full.task, seed, e.name))
        if lease is not None:
            with lease:
                trained = curves() | {"train_error": np.zeros(50)}
                lease.finish(Run(series=CHALLENGED if "challenge" in e.name else trained))
