"""Watching a training: measures along the way, within a share of its time, then a sentence.

A measurement is taken only when all that were taken, with what is expected of this one, stay within
`share` of the time since the watch began. Where one takes longer than expected, as only a first one
of its kind should, the share is passed by that much, and no other is taken until it is made up for.
Rows begin with what fits first, two samples and no products with ∇²L, and go
up from there, rung by rung (`rungs`): at each the network as it was at the start is measured first,
which was kept, so that there is something to compare with. From the third row of a rung on half of
what is allowed is left for the next one.
"""

import csv
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from flattest.curvature.operator import Operator
from flattest.curvature.result import whole
from flattest.curvature.sharpness import Maker, operator_of
from flattest.curvature.trees import parted
from flattest.errors import FlattestError
from flattest.flatness.league import MEASURES, League, league
from flattest.flatness.league_measures import LeagueSettings
from flattest.flatness.rungs import (
    Costs,
    Products,
    Row,
    Rung,
    alike,
    estimates,
    ladder,
    named,
    settings_of,
    value_of,
    wanted_of,
)
from flattest.flatness.words import flatter_or_rescaled
from flattest.problem.data import Dataset
from flattest.problem.models import FunctionModel, Model

DEFAULT = ("trace", "least_trace", "top_eigenvalue")
"""What is measured unless other measures are asked for."""
PLANNED = 0.8
"""Of the share: a clock does not see that the steps after a row begin with cold caches."""
COMPARED = 2  # rows of a rung; further ones leave half of what is allowed for the next rung
STEPS_OF_A_GLANCE = 4
"""Steps that a glance is expected to take, since nothing measured before tells. Measured: 1.9 of
ResNet-20's, and of a transformer's, of 64 samples each."""
_OF_EVERY_ROW = {"step", "seconds", "samples", "train_loss"}


class WatchLog(Protocol):
    """Where a watch writes: each row as it comes, and the sentence at the end."""

    def write(self, row: Row) -> None: ...

    def close(self, rows: Sequence[Row], sentence: str) -> None: ...


class Watch:
    """Measures a network along its training: `watch.step(params)` after every update.

    `function`, data and loss are those of `flattest.measure`. At most every `every` steps, and
    within `share` of the time (0.05), the `measures` of the league are taken on up to `samples` of
    the data, spread evenly; eigenvalues to 1e-3. `lr`, of the watch or of a step, gives the column
    edge = η λ_max / 2. `to` are logs. `close()` returns the sentence: flatter, or only rescaled?

    `rows` has a dict for each measurement. Early ones are of fewer `samples` and leave out what
    takes products with ∇²L, or are allowed 16 of these: what is then only estimated is called
    `NAME_estimate`, with its `NAME_stderr`, or `NAME_residual` of an eigenvalue.
    """

    least_guess = 5.0
    """Seconds that a glance is expected to take at least: a function of JAX is compiled for it."""

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
        most = self._spread(data, samples)
        self.samples = self._count(most)
        self._rungs = ladder(self.samples, self.measures)
        self._data = {rung.samples: self._spread(most, rung.samples) for rung in self._rungs}
        self.every, self.share, self.lr, self.to = every, share, lr, tuple(to)
        self.rows: list[Row] = []
        self.steps = 0
        self._due = 0.0
        self._costs = Costs()
        self._taken: dict[Rung, list[Row]] = {}
        self._start: Any = None
        self._model: FunctionModel | None = None
        self._no_least = ""
        self._closed = ""
        self.spent = clock() - self._began  # Choosing the samples is part of watching.

    def step(self, params: Any, lr: float | None = None) -> Row | None:
        """Say that one more update was made; the row, if there was time to measure."""
        began, before = self._clock(), self.spent
        row = self._row_if_due(began, params, self.lr if lr is None else lr)
        self.spent = before + self._clock() - began  # To look whether there is time takes time.
        return row

    def _row_if_due(self, now: float, params: Any, lr: float | None) -> Row | None:
        if self._start is None:
            self._start = (self.steps, self._kept(params), lr)
        self.steps += 1
        if self.steps % self.every or now < self._due:
            return None
        return self._affordable_row(params, lr)

    def _affordable_row(self, params: Any, lr: float | None) -> Row | None:
        if self._costs.glance is None and not self._glanced():
            return None
        rung, following = self._rung(), self._following()
        compared = rung is None or len(self._taken[rung]) >= COMPARED
        choices = []
        if compared and following is not None:
            below = self._taken[rung][-1] if rung else None
            cost = self._costs.expected(following, below)
            choices.append((following, cost, 1.0, self._start))
        if rung is not None:
            part = 0.5 if compared and following is not None else 1.0
            choices.append((rung, self._costs.last[rung], part, (self.steps, params, lr)))
        for chosen, cost, part, network in choices:
            if self._affordable(cost, part):
                return self._take(chosen, *network)
        self._due = min((self._when(cost, part) for _, cost, part, _ in choices), default=np.inf)
        return None

    def _glanced(self) -> bool:
        """Looks what a gradient of the fewest samples takes, if that can be afforded."""
        step = (self._clock() - self._began) / self.steps
        guess = max(STEPS_OF_A_GLANCE * step, self.least_guess)
        if not self._affordable(guess):
            self._due = self._when(guess)
            return False
        self._costs.glance = self._timed(self._glance)
        return True

    def _rung(self) -> Rung | None:
        """The one that rows are taken at now."""
        return max(self._taken, key=self._rungs.index) if self._taken else None

    def _following(self) -> Rung | None:
        """The next one, where the last row is not all that there is to know."""
        rung = self._rung()
        if rung is None:
            return self._rungs[0] if self._rungs else None
        left = self._rungs[self._rungs.index(rung) + 1 :]
        complete = rung.samples == self.samples and not estimates(self._taken[rung][-1])
        return left[0] if left and not (complete and rung.products > Products.NONE) else None

    def _glance(self) -> None:
        with self._measuring(self._start[1]):
            op = self._operator(self._start[1], self._data[self._rungs[0].samples])
            op.gradient_at(op.point())
            self._costs.outputs = op.outputs().size // op.samples

    def _affordable(self, cost: float, part: float = 1.0) -> bool:
        """Within a part of what is allowed."""
        return self.spent + cost <= part * self._planned * (self._clock() - self._began)

    def _when(self, cost: float, part: float = 1.0) -> float:
        """The time from which on so much more is within a part of what is allowed."""
        return self._began + (self.spent + cost) / (part * self._planned)

    @property
    def _planned(self) -> float:
        return PLANNED * self.share

    def _timed(self, call: Callable[[], Any]) -> float:
        began = self._clock()
        call()
        cost = self._clock() - began
        self.spent += cost
        return cost

    def _take(self, rung: Rung, step: int, params: Any, lr: float | None) -> Row | None:
        """A row of a rung, which is left out from now on where it can tell nothing."""
        row: Row = {"step": float(step), "seconds": self._clock() - self._began}
        self._costs.took(rung, self._timed(lambda: self._measure(row, rung, params, lr)))
        if set(row) <= _OF_EVERY_ROW:
            self._rungs = [other for other in self._rungs if other != rung or other in self._taken]
            return None
        self._taken.setdefault(rung, []).append(row)
        self.rows.append(row)
        for log in self.to:
            log.write(row)
        return row

    def _measure(self, row: Row, rung: Rung, params: Any, lr: float | None) -> None:
        data, wanted = self._data[rung.samples], wanted_of(rung, self.measures, lr)
        found = self._league(params, data, wanted, settings_of(rung, lr))
        row |= {"samples": float(rung.samples), "train_loss": found.mean_loss}
        for name, quantity in found.values.items():
            row |= named(name, quantity)
        self._no_least = found.missing.get("least_trace", "")

    def _league(
        self, params: Any, data: Any, only: Sequence[str], settings: LeagueSettings
    ) -> League:
        with self._measuring(params):
            op = self._operator(params, data)
            made = Maker(lambda data, loss: op)
            found = whole(league(made, None, data, self._loss, only=only, settings=settings))
            self._was_measured(op, data)
        return found  # Ctrl-C is the training's.

    def _measuring(self, params: Any) -> AbstractContextManager[Any]:
        """Around all that runs the network."""
        return nullcontext()

    def _operator(self, params: Any, data: Any) -> Operator:
        return operator_of(self._as_model(params), params, data, self._loss)

    def _was_measured(self, op: Operator, data: Any) -> None: ...

    def _check_code(self, params: Any) -> None:
        """What is not checked at every row, once more; of JAX's functions all is, at every row."""

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

    def _count(self, data: Any) -> int:
        return data.n if isinstance(data, Dataset) else len(data[1])

    @property
    def overhead(self) -> float:
        """The share of the time since the watch began that was spent measuring."""
        return self.spent / max(self._clock() - self._began, 1e-12)

    def close(self, params: Any = None, *, final: bool = False) -> str:
        """The sentence. The last `params` are measured if that can be afforded, or if `final` in
        full, whatever it takes, and so is the network at the start."""
        if self._closed:
            return self._closed
        if params is not None and final:
            self._finish(params)
        elif params is not None:
            self._end(params)
        self._closed = self.sentence()
        for log in self.to:
            log.close(self.rows, self._closed)
        return self._closed

    def _finish(self, params: Any) -> None:
        full = Rung(self.samples, Products.ALL)
        self._check_code(params)
        now = (self.steps, params, self.lr)
        for end in (now,) if self._start is None else (self._start, now):
            if not self._complete(end[0]):
                self._take(full, *end)

    def _complete(self, step: int) -> bool:
        """Whether there is a row of all samples at a step, with nothing estimated or left out."""
        rows = (row for rung, rows in self._taken.items() if rung.products for row in rows)
        return any(
            row["step"] == step and row["samples"] == self.samples and not estimates(row)
            for row in rows
        )

    def _end(self, params: Any) -> None:
        """A last row, of the highest rung for which there is time."""
        if any(row["step"] == self.steps for row in self.rows):
            return
        for rung in sorted(self._taken, key=self._rungs.index, reverse=True):
            if self._affordable(self._costs.last[rung]):
                self._take(rung, self.steps, params, self.lr)
                return

    def sentence(self) -> str:
        """What became of the network between the first and the last measurement of a kind."""
        rows = alike(self.rows)
        if not rows:
            return (
                f"No two networks were measured alike, {self.share:.0%} of "
                f"{self._clock() - self._began:.0f} s being too little for it; close(final=True) "
                "measures two, fewer samples are faster."
            )
        return self._compared(rows[0], rows[-1])

    def _compared(self, first: Row, last: Row) -> str:
        spoken = f"at step {first['step']:.0f}", f"at step {last['step']:.0f}"
        trace = value_of(first, "trace"), value_of(last, "trace")
        if trace[0] is None or trace[1] is None:
            return f"The trace was not among what was measured from {spoken[0]} to {spoken[1]}."
        least = first.get("least_trace"), last.get("least_trace")
        found = flatter_or_rescaled((trace[0], trace[1]), least, spoken, self._no_least)
        return " ".join([found, *self._how(first, last), *_stable(last, spoken[1])])

    def _how(self, first: Row, last: Row) -> Iterator[str]:
        """On which samples, where these are not all, and whether the traces are estimates."""
        samples = first["samples"]
        if samples < self.samples:
            yield f"That is on {samples:.0f} of {self.samples} samples."
        if "trace" in estimates(first):
            errors = [f"{row['trace_stderr']:.2g}" for row in (last, first)]
            yield f"Both traces are estimates, to ± {errors[0]} and {errors[1]}."


def _stable(row: Row, spoken: str) -> Iterator[str]:
    if (edge := value_of(row, "edge")) is not None:
        about = "at least " if "edge" in estimates(row) else ""
        yield f"η λ_max / 2 is {about}{edge:.3g} {spoken}."


def evenly(n: int, count: int) -> list[int]:
    """The numbers of `count` of n samples, spread evenly."""
    count = min(n, count)
    return [i * n // count for i in range(count)]


class CsvLog:
    """A row for each measurement, written as it comes: not in order of steps, since the network at
    the start is measured at each rung."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._rows: list[Row] = []
        self._names: list[str] = []

    def write(self, row: Row) -> None:
        """Columns are the names of all rows so far, empty where a row has none such; a row with a
        new name has all written anew."""
        self._rows.append(row)
        new = [name for name in row if name not in self._names]
        self._names += new
        with self.path.open("w" if new else "a", newline="") as file:
            writer = csv.DictWriter(file, self._names)
            if new:
                writer.writeheader()
            writer.writerows(self._rows if new else [row])

    def close(self, rows: Sequence[Row], sentence: str) -> None: ...


def _by_samples(row: Row) -> Row:
    return {f"flattest/{row['samples']:.0f}_samples/{name}": row[name] for name in row}


class _Curves:
    """Curves of rows that may be compared, each in order of steps: the network at the start is
    measured again with more products, and curves that went on since do not go back to it."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def onward(self, row: Row) -> Row:
        """What goes on a curve."""
        named = _by_samples(row)
        found = {name: v for name, v in named.items() if row["step"] > self._last.get(name, -1)}
        self._last |= dict.fromkeys(found, row["step"])
        return found


class TensorBoardLog:
    """Scalars under `flattest/64_samples/` and so on, curves in order of steps, and the sentence as
    a text; needs flattest[tensorboard]."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise FlattestError(
                "Writing for TensorBoard needs PyTorch and tensorboard; install them with: "
                "pip install 'flattest[torch,tensorboard]'."
            ) from None
        self._writer, self._curves = SummaryWriter(str(folder)), _Curves()

    def write(self, row: Row) -> None:
        for name, value in self._curves.onward(row).items():
            self._writer.add_scalar(name, value, int(row["step"]))

    def close(self, rows: Sequence[Row], sentence: str) -> None:
        self._writer.add_text("flattest/sentence", sentence)
        self._writer.close()


def _step(row: Row) -> Row:
    """By which what is logged is drawn, whether or not that goes on."""
    return _by_samples({name: row[name] for name in ("step", "samples")})


class WandbLog:
    """Into a run of Weights & Biases: the current one, or one that is given; under
    `flattest/64_samples/` and so on, curves in order of `flattest/64_samples/step`."""

    def __init__(self, run: Any = None) -> None:
        if run is None:
            try:
                import wandb
            except ImportError:
                raise FlattestError("Logging to W&B needs wandb: pip install wandb.") from None
            run = wandb.run
        if run is None:
            raise FlattestError("There is no W&B run yet: call wandb.init() first.")
        self._run, self._curves = run, _Curves()

    def write(self, row: Row) -> None:
        if found := self._curves.onward(row):
            self._run.log(_step(row) | found)

    def close(self, rows: Sequence[Row], sentence: str) -> None:
        self._run.summary["flattest/sentence"] = sentence
