"""Training: a list of phases, cut into stretches for an engine, logged, saved and resumed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from flattest.errors import FlattestError, require_known
from flattest.files import write_tensors
from flattest.problem.data import Dataset
from flattest.problem.libraries import adopted
from flattest.problem.losses import Loss, loss as resolve_loss
from flattest.problem.models import Model, Params
from flattest.problem.randomness import checked_seed
from flattest.training import checks, engines
from flattest.training.algorithms import Phase
from flattest.training.checkpoint import Checkpoints, identity
from flattest.training.flow_engine import NOTHING_YET
from flattest.training.flows import Flow
from flattest.training.log import Log, Schedule
from flattest.training.metrics import Metrics, Point, draw_population, stagnated_at
from flattest.training.run import Progress, Run
from flattest.training.state import Problem, State

_NOTHING_HELD_OUT = (
    "No test error is known: the data have no distribution and no held-out examples; give "
    "Dataset(x, y, test_x=…, test_y=…) or Dataset(x, y, test=0.2)."
)


def train(
    model: Model,
    data: Dataset,
    phases: Phase | Flow | Sequence[Phase | Flow],
    seed: int = 0,
    loss: str | Loss = "mse",
    backend: engines.Backend = "auto",
    dtype: str = "float32",
    params: Params | None = None,
    log: Log | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 10.0,
    snapshots: str | Path | None = None,
    test_size: int = 10_000,
    progress: Callable[[Progress], None] | None = None,
    progress_seconds: float = 1.0,
) -> Run:
    """Train `model` on `data` by the phases, one after another.

    `seed` decides the initial parameters (unless `params` are given), the order of samples, the
    label noise and the test points. `backend` "auto" takes the fused engine where it covers all
    phases, else the JAX engine; the run says which and why. `dtype` is the precision of training;
    what is logged is evaluated in float64. With a folder `checkpoint`, the run is saved every
    `checkpoint_seconds`, and calling again with the same arguments continues it, with the same
    bits as if it had never been interrupted. `snapshots` is a folder for the parameters at some of
    the logged epochs, `EPOCH.safetensors`. `progress` is called about every `progress_seconds`,
    which is also how long Ctrl-C may have to wait.
    """
    log, loss = Log() if log is None else log, resolve_loss(loss)
    if not isinstance(log, Log):
        raise FlattestError(f"A log is made by flattest.Log, not {log!r}.")
    checks.require_places_and_progress(checkpoint, snapshots, progress)
    checks.require_paces(checkpoint_seconds=checkpoint_seconds, progress_seconds=progress_seconds)
    model, seed = adopted(model), checked_seed(seed)
    require_known("dtype", dtype, checks.DTYPES)
    phases, params = checks.checked(model, data, phases, loss, seed, params)
    tally = NOTHING_YET if checks.flows(phases, dtype) else {}
    values = {key: np.array(value, dtype, order="C") for key, value in params.items()}
    start = State(values, tally=tally)
    engine, reason = engines.choose(backend, model, loss, phases)
    settings = {"seed": seed, "loss": loss, "backend": engine, "log": log, "test_size": test_size}
    saves = None
    if checkpoint is not None:
        own = identity(model, data, phases, start.params, **settings)
        saves = Checkpoints(Path(checkpoint), own, checkpoint_seconds)
    return _Session(
        problem=Problem(model, data, loss, seed),
        metrics=Metrics(model, data, loss, draw_population(data, test_size, seed)),
        phases=tuple(phases),
        start=start,
        backend=engine,
        reason=reason,
        log=log,
        snapshots=None if snapshots is None else Path(snapshots),
        checkpoints=saves,
        progress=progress,
        pace=progress_seconds,
    ).run()


@dataclass(eq=False)
class _Session:
    """One run at work: its settings, resolved and checked, and what it has logged.

    An engine is asked for `stretch` epochs at once: about `pace` seconds worth of them.
    """

    problem: Problem
    metrics: Metrics
    phases: tuple[Phase | Flow, ...]
    start: State
    backend: str
    reason: str
    log: Log
    snapshots: Path | None
    checkpoints: Checkpoints | None
    progress: Callable[[Progress], None] | None
    pace: float
    points: list[Point] = field(default_factory=list)
    seconds: float = 0.0
    stretch: float = 1.0
    reported: float = field(default_factory=time.monotonic)

    @property
    def lengths(self) -> list[int]:
        return [phase.length(self.problem.data.n) for phase in self.phases]

    @property
    def series(self) -> dict[str, np.ndarray]:
        return {name: np.array([point[name] for point in self.points]) for name in self.points[0]}

    def run(self) -> Run:
        schedule, state = self.log.schedule(self.lengths), self.restore()
        if not self.points:
            self.record(state, schedule, step=0)
        while state.phase < len(self.phases) and state.halt not in ("diverged", "stalled"):
            before, state = state, self.advance(state, schedule)
            state = self.take_stock(before, state, schedule)
            if time.monotonic() - self.reported >= self.pace:
                self.report(state)
        self.save(state)
        self.report(state)
        status, step, sentence = self.end(state)
        return Run(
            series=self.series | dict(state.events),
            seed=self.problem.seed,
            status=status,
            step=step,
            epoch=state.epoch,
            params=state.params,
            backend=self.backend,
            reason=self.reason,
            sentence=sentence,
            notes=self.notes,
            seconds=self.seconds,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        found = list(self.checkpoints.notes) if self.checkpoints is not None else []
        if self.metrics.population is None and "test" in self.log.measures:
            found.append(_NOTHING_HELD_OUT)
        return tuple(found)

    def restore(self) -> State:
        """The state to go on from: that of the newest sound checkpoint, or the start."""
        saved = None if self.checkpoints is None else self.checkpoints.load()
        if saved is None:
            return self.start
        state, series, self.seconds = saved
        rows = zip(*series.values(), strict=True)
        self.points = [dict(zip(series, map(float, row), strict=True)) for row in rows]
        return state

    def advance(self, state: State, schedule: Schedule) -> State:
        """The engine's next stretch, to the next point of the log at most."""
        phase, began = self.phases[state.phase], time.perf_counter()
        ahead = min(
            self.lengths[state.phase] - state.phase_epoch,
            schedule.distance(state.phase, state.phase_epoch, state.epoch),
        )
        epochs = max(1, min(int(ahead), int(self.stretch)))
        try:
            after = engines.advance(self.backend, self.problem, phase, state, epochs)
        except (KeyboardInterrupt, SystemExit):
            self.save(state)
            raise
        elapsed = time.perf_counter() - began
        self.seconds += elapsed
        speed = (after.epoch - state.epoch) / max(elapsed, 1e-9)
        # The first calls compile: growth is bounded, not trusted.
        self.stretch = min(4 * self.stretch, max(1.0, speed * self.pace))
        return after

    def take_stock(self, before: State, state: State, schedule: Schedule) -> State:
        """Log and save what is due; step into the next phase where this one is over."""
        # Of a diverged run `state.step` is ahead of its parameters, which are at an epoch's end.
        per_epoch = self.phases[state.phase].steps_per_epoch(self.problem.data.n)
        step = before.step + (state.epoch - before.epoch) * per_epoch
        broken = state.halt in ("diverged", "stalled")
        over = state.halt == "stopped" or state.phase_epoch == self.lengths[state.phase]
        due = schedule.is_due(state.phase, state.phase_epoch, state.epoch)
        if (over or due or broken) and state.epoch > self.points[-1]["epoch"]:
            self.record(state, schedule, step)
        if over and not broken:
            state = replace(
                state, phase=state.phase + 1, phase_epoch=0, changed=False, halt=None, memory={}
            )
        if self.checkpoints is not None and self.checkpoints.is_due:
            self.save(state)
        return state

    def record(self, state: State, schedule: Schedule, step: int) -> None:
        where = {"epoch": float(state.epoch), "step": float(step), "phase": float(state.phase)}
        if self.snapshots is not None and schedule.keeps(len(self.points)):
            write_tensors(self.snapshots / f"{state.epoch:09d}.safetensors", state.params)
        measured = self.metrics.at(state.params, self.log.measures)
        self.points.append(where | measured | dict(state.tally))

    def save(self, state: State) -> None:
        if self.checkpoints is not None:
            self.checkpoints.save(state, self.series, self.seconds)

    def report(self, state: State) -> None:
        self.reported = time.monotonic()
        if self.progress is not None:
            fraction = 1.0 if state.halt in ("diverged", "stalled") else self.done(state)
            self.progress(Progress(fraction, state.epoch, state.step, self.series))

    def done(self, state: State) -> float:
        """The share of the planned epochs; a phase that stopped early counts whole.

        An epoch of a flow, a piece of its time, takes as long as thousands of the others, so that a
        flow counts as much as the mean of the other phases.
        """
        lengths, flowing = self.lengths, [isinstance(phase, Flow) for phase in self.phases]
        others = [length for length, flows in zip(lengths, flowing, strict=True) if not flows]
        each = sum(others) / len(others) if others else 1.0
        whole = [each if f else float(n) for f, n in zip(flowing, lengths, strict=True)]
        so_far = sum(whole[: state.phase])
        if state.phase < len(whole):
            so_far += whole[state.phase] * state.phase_epoch / lengths[state.phase]
        return so_far / sum(whole)

    def end(self, state: State) -> tuple[str, int, str]:
        """How the run ended, at which step, and the same in a sentence."""
        if state.halt == "diverged":
            why = "The network's output was not finite at step"
            return "diverged", state.step, f"{why} {state.step}."
        if state.halt == "stalled":
            at = f"time {state.tally['time']:.6g}"
            return "stagnated", state.step, f"The flow stalled at {at}: no step was small enough."
        since = stagnated_at(self.series, self.metrics, self.phases[-1].weight_decay > 0)
        loss = f"{self.points[-1]['train_loss']:.3g}"
        if since is None:
            return "finished", state.step, f"{state.epoch} epochs, training loss {loss}."
        return "stagnated", since, f"The training loss is stuck at {loss} since step {since}."
