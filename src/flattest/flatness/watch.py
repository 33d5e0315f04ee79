"""Watching a training: measures along the way, within a share of its time, then a sentence.

A measurement is taken only when all that were taken, with this one, stay within `share` of the time
since the watch began; how long one takes is known from the last, and at first from a rehearsal on
two samples, which waits until it fits too, and from one on eight, which tells how much of that is
the same for any number. The network as it was at the start is kept, and measured
once that can be afforded.
"""

import csv
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from flattest.curvature.result import whole
from flattest.curvature.trees import parted
from flattest.errors import FlattestError
from flattest.flatness.league import MEASURES, League, league
from flattest.flatness.league_measures import LeagueSettings
from flattest.flatness.words import flatter_or_rescaled
from flattest.problem.data import Dataset
from flattest.problem.models import FunctionModel, Model

DEFAULT = ("trace", "least_trace", "top_eigenvalue")
"""What is measured unless other measures are asked for."""
REHEARSED, AGAIN = 2, 8  # samples
GLANCE, GLANCES = ("gradient_norm",), 16  # a rehearsal took 4 (digits CNN) to 15 (ResNet-20)
Row = dict[str, float]


class WatchLog(Protocol):
    """Where a watch writes: each row as it comes, and the sentence at the end."""

    def write(self, row: Row) -> None: ...

    def close(self, rows: Sequence[Row], sentence: str) -> None: ...


class Watch:
    """Measures a network along its training: `watch.step(params)` after every update.

    `function`, data and loss are those of `flattest.measure`. At most every `every` steps, and
    within `share` of the time (0.05), the `measures` of the league are taken on `samples` of the
    data, spread evenly, the same ones all along; eigenvalues to 1e-3. `lr`, of the watch or of a
    step, gives the column edge = η λ_max / 2. `to` are logs. `close()` returns the sentence:
    flatter, or only rescaled? `rows` has a dict for each measurement.
    """

    def __init__(
        self,
        function: Any,
        data: Any,
        loss: Any = "mse",
        *,
        every: int = 1,
        share: float = 0.05,
        samples: int = 64,
        measures: Iterable[str] = DEFAULT,
        lr: float | None = None,
        to: Iterable[WatchLog] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._began = clock()
        if every < 1 or samples < 1 or share <= 0:
            raise FlattestError("every and samples must be at least 1, and share positive.")
        self.measures = tuple(measures)
        if unknown := [name for name in self.measures if name not in MEASURES]:
            raise FlattestError(f"There is no measure {unknown[0]}; valid: {', '.join(MEASURES)}.")
        self._function, self._loss = function, loss
        self._few, self._more = (self._spread(data, count) for count in (REHEARSED, AGAIN))
        self._data = self._spread(data, samples)
        self._samples = samples
        self.every, self.share, self.lr, self.to = every, share, lr, tuple(to)
        self.rows: list[Row] = []
        self.steps = 0
        self._cost: float | None = None
        self._rehearsed: float | None = None
        self._glance: float | None = None
        self._start: Any = None
        self._model: FunctionModel | None = None
        self._closed = ""
        self.spent = clock() - self._began  # Choosing the samples is part of watching.

    def step(self, params: Any, lr: float | None = None) -> Row | None:
        """Say that one more update was made; the row, if there was time to measure."""
        lr = self.lr if lr is None else lr
        if self._start is None:
            self._start = (self.steps, self._kept(params), lr)
        self.steps += 1
        if self.steps % self.every:
            return None
        if not self._affordable(self._expected(params, lr)):
            return None
        if not self.rows:
            self._take(*self._start)
            return self.rows[-1]
        return self._take(self.steps, params, lr)

    def _expected(self, params: Any, lr: float | None) -> float:
        """How long a measurement takes: as the last did, or the rehearsal, as soon as that can be
        afforded, which a glance at the gradient of its samples tells."""
        if self._cost is None:
            if self._glance is None:
                if not self._affordable(self._guess()):
                    return np.inf
                glance = lambda: self._league(params, self._few, GLANCE, LeagueSettings())  # noqa: E731
                self._glance = self._timed(glance)
            if not self._affordable(GLANCES * self._glance):
                return np.inf
            once = self._timed(lambda: self._measured(params, lr, self._few))
            self._rehearsed, self._cost = once, once * self._samples / REHEARSED
        elif self._rehearsed is not None and not self.rows:
            self._rehearse_again(params, lr, self._rehearsed)
        return self._cost

    def _rehearse_again(self, params: Any, lr: float | None, few: float) -> None:
        """Where a row would be too long by its samples' share of the rehearsal: a second one may
        show that most of that is the same for any number of samples. Twice what a line through
        both says, since times scatter."""
        if self._samples <= AGAIN or self._affordable(few * self._samples / REHEARSED):
            return
        if not self._affordable(few * AGAIN / REHEARSED):
            return
        more = self._timed(lambda: self._measured(params, lr, self._more))
        each = max(0.0, more - few) / (AGAIN - REHEARSED)
        line = more + each * (self._samples - AGAIN)
        self._cost = min(few * self._samples / REHEARSED, 2 * line)
        self._rehearsed = None

    def _guess(self) -> float:
        """What a glance may take, before there was one: as long as two steps of the training, and
        a tenth of a second at least."""
        return max(2 * (self._clock() - self._began) / self.steps, 0.1)

    def _affordable(self, cost: float) -> bool:
        return self.spent + cost <= self.share * (self._clock() - self._began)

    def _take(self, step: int, params: Any, lr: float | None) -> Row:
        began = self._clock()
        found = self._measured(params, lr, self._data)
        self._cost = self._clock() - began
        self.spent += self._cost
        row = {"step": float(step), "seconds": began - self._began, "train_loss": found.mean_loss}
        row |= {name: quantity.value for name, quantity in found.values.items()}
        self.rows.append(row)
        for log in self.to:
            log.write(row)
        return row

    def _timed(self, call: Callable[[], Any]) -> float:
        began = self._clock()
        call()
        cost = self._clock() - began
        self.spent += cost
        return cost

    def _measured(self, params: Any, lr: float | None, data: Any) -> League:
        wanted = self.measures + ("edge",) * (lr is not None and "edge" not in self.measures)
        settings = LeagueSettings(lr=lr, tol=1e-3, k=1, rtol=0.05, steps=5, draws=8)
        return self._league(params, data, wanted, settings)

    def _league(
        self, params: Any, data: Any, only: Sequence[str], settings: LeagueSettings
    ) -> League:
        function = self._as_model(params)
        found = league(function, params, data, self._loss, only=only, settings=settings)
        return whole(found)  # Ctrl-C is the training's.

    def _as_model(self, params: Any) -> Any:
        """A function of a tree of arrays as a model, which is compiled once for all steps."""
        if isinstance(self._function, Model) or parted(self._function, params).params is not params:
            return self._function
        if self._model is None:
            self._model = FunctionModel(self._function, lambda d, seed: params)
        return self._model

    def _kept(self, params: Any) -> Any:
        """The parameters as they are now; JAX's do not change."""
        return params

    def _spread(self, data: Any, count: int) -> Any:
        """So many samples, evenly from all of the data."""
        if isinstance(data, Dataset):
            rows = evenly(data.n, count)
            return replace(data, x=data.x[rows], y=data.y[rows])
        x, y = data
        rows = evenly(len(y), count)
        return x[rows], y[rows]

    @property
    def overhead(self) -> float:
        """The share of the time since the watch began that was spent measuring."""
        return self.spent / max(self._clock() - self._began, 1e-12)

    def close(self, params: Any = None, *, final: bool = False) -> str:
        """The sentence. The last `params` are measured if that can be afforded, or if `final`."""
        if self._closed:
            return self._closed
        last = self.rows[-1]["step"] if self.rows else -1.0
        if params is not None and last < self.steps and (final or self._has_time()):
            if not self.rows and self._start is not None:
                self._take(*self._start)
            self._take(self.steps, params, self.lr)
        self._closed = self.sentence()
        for log in self.to:
            log.close(self.rows, self._closed)
        return self._closed

    def _has_time(self) -> bool:
        return bool(self.rows) and self._cost is not None and self._affordable(self._cost)

    def sentence(self) -> str:
        """What became of the network between the first and the last measurement."""
        if len(self.rows) < 2:
            return (
                f"Only {len(self.rows)} of the two measurements that a comparison needs fit into "
                f"{self.share:.0%} of {self._clock() - self._began:.0f} s; close(final=True) takes "
                "them, fewer samples are faster."
            )
        first, last = self.rows[0], self.rows[-1]
        spoken = f"at step {first['step']:.0f}", f"at step {last['step']:.0f}"
        if "trace" not in first:
            return f"The trace was not among what was measured from {spoken[0]} to {spoken[1]}."
        found = flatter_or_rescaled(
            (first["trace"], last["trace"]),
            (first.get("least_trace"), last.get("least_trace")),
            spoken,
        )
        edge = last.get("edge")
        return found if edge is None else f"{found} η λ_max / 2 is {edge:.3g} {spoken[1]}."


def evenly(n: int, count: int) -> list[int]:
    """The numbers of `count` of n samples, spread evenly."""
    count = min(n, count)
    return [i * n // count for i in range(count)]


class CsvLog:
    """A row for each measurement, written as it comes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._names: list[str] = []

    def write(self, row: Row) -> None:
        """The first row's names are the columns."""
        new = not self._names
        self._names = self._names or list(row)
        with self.path.open("w" if new else "a", newline="") as file:
            writer = csv.DictWriter(file, self._names, extrasaction="ignore")
            if new:
                writer.writeheader()
            writer.writerow(row)

    def close(self, rows: Sequence[Row], sentence: str) -> None: ...


class TensorBoardLog:
    """Scalars under `flattest/`, and the sentence as a text; needs flattest[tensorboard]."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise FlattestError(
                "Writing for TensorBoard needs PyTorch and tensorboard; install them with: "
                "pip install 'flattest[torch,tensorboard]'."
            ) from None
        self._writer = SummaryWriter(str(folder))

    def write(self, row: Row) -> None:
        for name, value in row.items():
            self._writer.add_scalar(f"flattest/{name}", value, int(row["step"]))

    def close(self, rows: Sequence[Row], sentence: str) -> None:
        self._writer.add_text("flattest/sentence", sentence)
        self._writer.close()


class WandbLog:
    """Into a run of Weights & Biases: the current one, or one that is given."""

    def __init__(self, run: Any = None) -> None:
        if run is None:
            try:
                import wandb
            except ImportError:
                raise FlattestError("Logging to W&B needs wandb: pip install wandb.") from None
            run = wandb.run
        if run is None:
            raise FlattestError("There is no W&B run yet: call wandb.init() first.")
        self._run = run

    def write(self, row: Row) -> None:
        self._run.log({f"flattest/{name}": value for name, value in row.items()})

    def close(self, rows: Sequence[Row], sentence: str) -> None:
        self._run.summary["flattest/sentence"] = sentence
