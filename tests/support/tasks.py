"""Tasks for the tests of runs, small, resumable and apt to die, and what other processes do."""

import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
from threadpoolctl import threadpool_info

from flattest.errors import FlattestError
from flattest.experiments.expectations import AtMost
from flattest.experiments.experiment import Computed, Experiment, Task, Variant
from flattest.files import read_json, write_json
from flattest.machine import share_of_cores
from flattest.runs.store import Store
from flattest.training.run import Run


class Spec(msgspec.Struct, frozen=True, tag="test"):
    """What a run's key is made of, and nothing to execute."""

    lr: float = 0.01
    epochs: int = 10


class Walk(Task, frozen=True, tag="test/walk"):
    """v ← cos(3v + seed), one step at a time, resumed from its scratch.

    Every step that was saved leaves a line in `folder`/steps; at step `dies` of seed 1 the process
    kills itself, once; at step `waits` it waits for the file `folder`/open.
    """

    folder: str
    steps: int = 20
    dies: int = -1
    waits: int = -1

    def execute(self, seed, place):
        state = place.scratch / "state.json"
        values = read_json(state) if state.exists() else [float(seed)]
        while len(values) <= self.steps:
            self.die_once(seed, len(values))
            self.wait(len(values))
            values.append(float(np.cos(3 * values[-1] + seed)))
            write_json(state, values)
            self.note(seed, len(values) - 1)
            place.progress(len(values) / (self.steps + 1), len(values), {"v": values})
        return Run(
            series={"v": values}, params={"last": np.array(values[-1:])}, step=self.steps, seed=seed
        )

    def die_once(self, seed, step):
        mark = Path(self.folder, "died")
        if (seed, step) == (1, self.dies) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def wait(self, step):
        while step == self.waits and not Path(self.folder, "open").exists():
            time.sleep(0.05)

    def note(self, seed, step):
        with open(Path(self.folder, "steps"), "a") as file:
            file.write(f"{seed} {step}\n")


def steps_done(folder):
    """Every step that was taken, in any process, as (seed, step)."""
    return [
        tuple(map(int, line.split())) for line in Path(folder, "steps").read_text().splitlines()
    ]


def undisturbed(seed, steps=20):
    values = [float(seed)]
    for _ in range(steps):
        values.append(float(np.cos(3 * values[-1] + seed)))
    return values


class Square(Computed, frozen=True, tag="test/square"):
    n: int = 3

    def compute(self, seed):
        return {"n": np.arange(self.n), "square": np.arange(self.n) ** 2.0 + seed}


class Threads(Computed, frozen=True, tag="test/threads"):
    """How many threads BLAS may use, and how many cores the process has for itself."""

    def compute(self, seed):
        threads = [library["num_threads"] for library in threadpool_info()]
        return {"threads": threads, "cores": [share_of_cores()]}


class Deadly(Computed, frozen=True, tag="test/deadly"):
    """Kills its process, whatever the seed but 0."""

    def compute(self, seed):
        if seed > 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"v": [0.0]}


class Failing(Computed, frozen=True, tag="test/failing"):
    sentence: str = "The width must be positive."

    def compute(self, seed):
        raise FlattestError(self.sentence)


def experiment_of(name, task, seeds=2, *expectations):
    variant = Variant(task, seeds, expectations or (AtMost(series="v", value=1.0),))
    return Experiment(
        name=name, figure="Figure 0", statement="It holds.", quick=variant, full=variant
    )


def do_what_is_free(root, seeds, wins):
    """Make the store, ask for every run and do those that no other process has."""
    store = Store.create(root)
    for key in [store.add(Square(), seed, "t/square") for seed in range(seeds)]:
        lease = store.lease(key)
        if lease is not None:
            with lease:
                lease.finish(Run(series={"epoch": [0]}))
            wins.put(key)


def has_loaded(name):
    """Whether this process has imported a user's file of that name."""
    return any(module.endswith(name) for module in sys.modules)
