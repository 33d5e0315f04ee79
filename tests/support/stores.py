"""Small stores for the tests of the page: finished, damaged and really trained runs."""

import json

import numpy as np

from flattest.experiments.registry import experiment
from flattest.experiments.training import Training
from flattest.files import write_sealed
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
    """Zero the file in place: its size, which is all that a listing looks at, stays."""
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
