"""The driver: a list of phases, cut into stretches for an engine, logged, saved and resumed."""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from flattest.errors import FlattestError
from flattest.files import write_tensors
from flattest.problem.data import Dataset
from flattest.problem.losses import Loss
from flattest.problem.losses import loss as resolve_loss
from flattest.problem.models import Model, Params
from flattest.training import checks, engines, loop
from flattest.training.algorithms import Phase
from flattest.training.checkpoint import Checkpoints, Saved, identity
from flattest.training.log import Log, Row, Schedule, Setting, draw_population, stagnated_at
from flattest.training.run import Progress, Run
from flattest.training.state import Problem, State

# An engine is called for about this long, so that progress is shown and Ctrl-C is heard.
_STRETCH_SECONDS = 1.0


class _Stretch(NamedTuple):
    """What a session asks of its engine."""

    phase: Phase
    state: State
    epochs: int


_Session = Generator[_Stretch, State, Run]


@dataclass(eq=False)
class _Job:
    """One run's settings, resolved and checked, and what it has written down."""

    problem: Problem
    setting: Setting
    phases: tuple[Phase, ...]
    start: State
    backend: str
    reason: str
    log: Log
    snapshots: Path | None
    progress: Callable[[Progress], None] | None
    checkpoints: Checkpoints | None = None
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def lengths(self) -> list[int]:
        return [phase.length(self.problem.data.n) for phase in self.phases]

    @property
    def series(self) -> dict[str, np.ndarray]:
        return {name: np.array([row[name] for row in self.rows]) for name in self.rows[0]}


def train(
    model: Model,
    data: Dataset,
    phases: Phase | Sequence[Phase],
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
) -> Run:
    """Train `model` on `data` by the phases, one after another.

    `seed` decides the initial parameters (unless `params` are given), the order of samples, the
    label noise and the test points. `backend` "auto" takes the fused engine where it covers all
    phases, else the JAX engine; the run says which and why. `dtype` is the precision of training;
    what is logged is evaluated in float64. With a folder `checkpoint`, the run is saved every
    `checkpoint_seconds`, and calling again with the same arguments continues it, with the same
    bits as if it had never been interrupted. `snapshots` is a folder for the parameters at some of
    the logged epochs, `EPOCH.safetensors`.
    """
    job = _prepare(
        model,
        data,
        phases,
        seed=seed,
        loss=loss,
        backend=backend,
        dtype=dtype,
        params=params,
        log=log,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        snapshots=snapshots,
        test_size=test_size,
        progress=progress,
    )
    engine, session = engines.ENGINES[job.backend], _session(job)
    try:
        stretch = next(session)
        while True:
            stretch = session.send(engine(job.problem, *stretch))
    except StopIteration as end:
        return end.value
    except (KeyboardInterrupt, SystemExit) as interrupt:
        session.throw(interrupt)
        raise


def train_many(
    model: Model,
    data: Dataset | Sequence[Dataset],
    phases: Phase | Sequence[Phase],
    seeds: Sequence[int],
    lrs: Sequence[float] | None = None,
    **settings,
) -> list[Run]:
    """One run for each seed, with the step size in `lrs` in its place, trained at once by JAX.

    `data` is one dataset, or one for each seed, all of one shape. The other settings are those of
    `train`, and every run is the one that `train` gives, up to the rounding of batched products.
    """
    datasets = [data] * len(seeds) if isinstance(data, Dataset) else list(data)
    rates = [None] * len(seeds) if lrs is None else list(lrs)
    if not len(datasets) == len(rates) == len(seeds) > 0:
        raise FlattestError(
            f"Give one seed, dataset and step size for each run, not {len(seeds)}, "
            f"{len(datasets)} and {len(rates)}."
        )
    if len({dataset.x.shape for dataset in datasets}) > 1:
        raise FlattestError("Runs that are trained at once need datasets of one shape.")
    refused = {"checkpoint", "snapshots", "progress", "backend"} & set(settings)
    if refused:
        raise FlattestError(f"train_many takes no {' or '.join(sorted(refused))}; use train.")
    jobs = [
        _prepare(model, own, _with_rate(phases, rate), seed=seed, backend="jax", **settings)
        for own, rate, seed in zip(datasets, rates, seeds, strict=True)
    ]
    return _drive_together(jobs)


def _with_rate(phases: Phase | Sequence[Phase], rate: float | None) -> list[Phase]:
    own = checks.as_list(phases)
    return own if rate is None else [msgspec.structs.replace(phase, lr=rate) for phase in own]


def _drive_together(jobs: list[_Job]) -> list[Run]:
    """Answers all sessions' requests for one kind of phase by one vectorized call."""
    sessions = [_session(job) for job in jobs]
    waiting = {i: next(session) for i, session in enumerate(sessions)}
    runs: dict[int, Run] = {}
    while waiting:
        leader = next(iter(waiting.values())).phase
        group = [i for i, ask in waiting.items() if loop.same_shape(ask.phase, leader)]
        # Those not in the group ride along for 0 epochs, since a new number would compile anew.
        asks = [waiting[i] if i in group else None for i in range(len(jobs))]
        states = loop.advance_many(
            [job.problem for job in jobs],
            [ask.phase if ask else leader for ask in asks],
            [ask.state if ask else job.start for ask, job in zip(asks, jobs, strict=True)],
            [ask.epochs if ask else 0 for ask in asks],
        )
        for i in group:
            try:
                waiting[i] = sessions[i].send(states[i])
            except StopIteration as end:
                runs[i] = end.value
                del waiting[i]
    return [runs[i] for i in range(len(jobs))]


def _session(job: _Job) -> _Session:
    """The life of one run. It yields what is to be trained next and is sent the state reached."""
    schedule = job.log.schedule(job.lengths)
    state, pace = _restore(job), _Pace()
    if not job.rows:
        _record(job, state, schedule, step=0)
    while state.phase < len(job.phases) and state.halt != "diverged":
        ahead = min(
            job.lengths[state.phase] - state.phase_epoch,
            schedule.distance(state.phase, state.phase_epoch, state.epoch),
        )
        began, before = time.perf_counter(), state
        try:
            state = yield _Stretch(job.phases[state.phase], state, pace.limit(int(ahead)))
        except (KeyboardInterrupt, SystemExit):
            _save(job, before)
            raise
        elapsed = time.perf_counter() - began
        job.seconds += elapsed
        pace.learn(state.epoch - before.epoch, elapsed)
        state = _take_stock(job, before, state, schedule)
        if pace.is_time_to_tell():
            _tell(job, state)
    _save(job, state)
    _tell(job, state)
    return _conclude(job, state)


def _take_stock(job: _Job, before: State, state: State, schedule: Schedule) -> State:
    """Log and save what is due; step into the next phase where this one is over."""
    # Of a diverged run `state.step` is ahead of its parameters, which are at an epoch's end.
    per_epoch = job.phases[state.phase].steps_per_epoch(job.problem.data.n)
    step = before.step + (state.epoch - before.epoch) * per_epoch
    over = state.halt == "stopped" or state.phase_epoch == job.lengths[state.phase]
    due = schedule.is_due(state.phase, state.phase_epoch, state.epoch)
    if (over or due or state.halt == "diverged") and state.epoch > job.rows[-1]["epoch"]:
        _record(job, state, schedule, step)
    if over and state.halt != "diverged":
        state = replace(state, phase=state.phase + 1, phase_epoch=0, changed=False, halt=None)
    if job.checkpoints is not None and job.checkpoints.is_due:
        _save(job, state)
    return state


class _Pace:
    """How many epochs an engine is asked for at once: about `_STRETCH_SECONDS` worth of them."""

    def __init__(self) -> None:
        self._epochs, self._told = 1.0, time.monotonic()

    def limit(self, ahead: int) -> int:
        return max(1, min(ahead, int(self._epochs)))

    def learn(self, epochs: int, seconds: float) -> None:
        speed = epochs / max(seconds, 1e-9)
        # The first calls compile: growth is bounded, not trusted.
        self._epochs = min(4 * self._epochs, max(1.0, speed * _STRETCH_SECONDS))

    def is_time_to_tell(self) -> bool:
        now = time.monotonic()
        if now - self._told < _STRETCH_SECONDS:
            return False
        self._told = now
        return True


def _restore(job: _Job) -> State:
    """The state to go on from: that of the newest sound checkpoint, or the start."""
    saved = None if job.checkpoints is None else job.checkpoints.load()
    if saved is None:
        return job.start
    names, columns = list(saved.series), zip(*saved.series.values(), strict=True)
    job.rows = [dict(zip(names, map(float, values), strict=True)) for values in columns]
    job.seconds = saved.seconds
    return saved.state


def _record(job: _Job, state: State, schedule: Schedule, step: int) -> None:
    where = {"epoch": float(state.epoch), "step": float(step), "phase": float(state.phase)}
    if job.snapshots is not None and schedule.keeps(len(job.rows)):
        write_tensors(job.snapshots / f"{state.epoch:09d}.safetensors", state.params)
    job.rows.append(where | job.log.row(job.setting, state.params))


def _save(job: _Job, state: State) -> None:
    if job.checkpoints is not None:
        job.checkpoints.save(Saved(state, job.series, job.seconds))


def _tell(job: _Job, state: State) -> None:
    if job.progress is not None:
        ended = state.phase >= len(job.phases) or state.halt == "diverged"
        fraction = 1.0 if ended else _fraction(job, state)
        job.progress(Progress(fraction, state.epoch, state.step, job.series))


def _fraction(job: _Job, state: State) -> float:
    """The share of the planned epochs that is behind; a phase that stopped early counts whole."""
    return (sum(job.lengths[: state.phase]) + state.phase_epoch) / sum(job.lengths)


def _conclude(job: _Job, state: State) -> Run:
    status, step, sentence = _verdict(job, state)
    return Run(
        series=job.series,
        seed=job.problem.seed,
        status=status,
        step=step,
        epoch=state.epoch,
        params=state.params,
        backend=job.backend,
        reason=job.reason,
        sentence=sentence,
        notes=tuple(job.checkpoints.notes) if job.checkpoints is not None else (),
        seconds=job.seconds,
    )


def _verdict(job: _Job, state: State) -> tuple[str, int, str]:
    if state.halt == "diverged":
        return "diverged", state.step, f"The network's output was not finite at step {state.step}."
    decay = job.phases[-1].weight_decay > 0
    since = stagnated_at(job.series, job.setting, decay)
    loss = job.rows[-1]["train_loss"]
    if since is not None:
        return "stagnated", since, f"The training loss is stuck at {loss:.3g} since step {since}."
    return "finished", state.step, f"{state.epoch} epochs, training loss {loss:.3g}."


def _prepare(
    model: Model,
    data: Dataset,
    phases: Phase | Sequence[Phase],
    *,
    seed: int,
    loss: str | Loss = "mse",
    backend: str = "auto",
    dtype: str = "float32",
    params: Params | None = None,
    log: Log | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 10.0,
    snapshots: str | Path | None = None,
    test_size: int = 10_000,
    progress: Callable[[Progress], None] | None = None,
) -> _Job:
    """Everything resolved and checked."""
    log, kind = Log() if log is None else log, resolve_loss(loss)
    checks.check_kinds(model, data)
    kind.check_labels(data.y)
    seed, dtype = checks.checked_seed(seed), checks.checked_dtype(dtype)
    phases = checks.checked_phases(phases, data, kind)
    params = model.init(data.d, seed) if params is None else params
    checks.check_params(model, params, data, phases)
    start = State({key: np.array(value, dtype, order="C") for key, value in params.items()})
    name, reason = engines.choose(backend, model, kind, phases)
    job = _Job(
        problem=Problem(model, data, kind, seed),
        setting=Setting(model, data, kind, draw_population(data, test_size, seed)),
        phases=tuple(phases),
        start=start,
        backend=name,
        reason=reason,
        log=log,
        snapshots=None if snapshots is None else Path(snapshots),
        progress=progress,
    )
    if checkpoint is not None:
        own = identity(
            *(model, data, phases, start.params),
            seed=seed,
            loss=kind,
            backend=name,
            log=log,
            test_size=test_size,
        )
        job.checkpoints = Checkpoints(Path(checkpoint), own, checkpoint_seconds)
    return job
