"""A training that was watched, kept in a store, so that the page shows it."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flattest.errors import FlattestError
from flattest.experiments.experiment import Computed, Experiment, Variant
from flattest.flatness.rungs import Row, alike
from flattest.runs.questions import ask
from flattest.runs.store import Store
from flattest.training.run import Run


class Watched(Computed, frozen=True, tag="watched"):
    """A training elsewhere, known by its name and by when it began, in seconds of the epoch."""

    name: str
    began: float

    def compute(self, seed: int) -> Mapping[str, Any]:
        raise FlattestError(
            f"The training {self.name} was watched where it ran; run it there again."
        )


class StoreLog:
    """Keeps what a watch measured in a store: `ft.Watch(…, to=[ft.StoreLog("out/store", "mine")])`.

    The run is written when the watch is closed; `flattest report` and `serve` show it.
    """

    def __init__(self, root: str | Path, name: str) -> None:
        self._store, self._task = Store.create(root), Watched(name=name, began=time.time())
        self._began = time.perf_counter()

    def write(self, row: Row) -> None: ...

    def close(self, rows: Sequence[Row], sentence: str) -> None:
        name = f"watched/{self._task.name}"
        variant = Variant(self._task, 1)
        figure = "A training that was watched"
        asked = Experiment(
            name=name, figure=figure, statement=sentence, quick=variant, full=variant
        )
        key = self._store.add(self._task, 0, name)
        lease = self._store.lease(key)
        if lease is None:
            raise FlattestError(f"The store has {name} already; a watch is closed once.")
        with lease:
            lease.finish(self._run(rows, sentence))
        ask(self._store, "experiment", name, {"full": asked}, "full")

    def _run(self, rows: Sequence[Row], sentence: str) -> Run:
        """Series of the rows that may be compared, in order of steps, with the names that training
        gives them: the trace is the sharpness, not one that is only estimated. What a row has not
        is NaN."""
        rows = alike(rows) or sorted(rows, key=lambda row: row.get("step", 0.0))
        names = dict.fromkeys(name for row in rows for name in row)
        series = {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}
        series |= {"epoch": series["step"]} if "step" in series else {}
        series |= {"sharpness": series["trace"]} if "trace" in series else {}
        step = int(rows[-1]["step"]) if rows else 0
        seconds = time.perf_counter() - self._began
        return Run(series=series, sentence=sentence, step=step, seconds=seconds)
