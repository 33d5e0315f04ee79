"""What a run writes down, and when: metrics in float64, at log-spaced epochs of every phase."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax import lax

from flattest.curvature.sharpness import trace
from flattest.errors import FlattestError, unknown
from flattest.evidence import Verdict
from flattest.flatness.bounds import known_lower_bound
from flattest.problem.data import Dataset, Population
from flattest.problem.losses import Loss, zero_one_error
from flattest.problem.models import MLP, Model, Params
from flattest.problem.randomness import generator

Row = dict[str, float]
Series = dict[str, np.ndarray]

# Rows of a test set evaluated at once: their pre-activations stay in the processor's cache.
_ROWS_AT_ONCE = 500
# A run has stagnated if it did not move for this many steps and half of its epochs.
_PATIENCE = 1000


@dataclass(frozen=True, eq=False)
class Setting:
    """What metrics are evaluated on; the test population is None where no distribution is known."""

    model: Model
    data: Dataset
    loss: Loss
    population: Population | None

    def outputs(self, params: Params, x: np.ndarray) -> np.ndarray:
        """f_θ on the rows of x in float64."""
        return np.asarray(_outputs(self.model, params, x, self.data.x))

    def mean_loss(self, f: np.ndarray, y: np.ndarray) -> float:
        return float(np.mean(self.loss.value(f, y)))

    @cached_property
    def least_loss(self) -> float:
        """The mean of the least values of ℓ: the training loss of an interpolator."""
        return float(np.mean(self.loss.floor(self.data.y)))

    @cached_property
    def constant_loss(self) -> float:
        """The training loss of the best constant output (its mean target, exact for squares)."""
        target = np.clip(self.loss.target(self.data.y), -1e3, 1e3)
        f = np.full(self.data.n, np.mean(target))
        return self.mean_loss(f, self.data.y)

    @cached_property
    def bound(self) -> float:
        """The certified lower bound on Tr ∇²L; NaN where none is known, or no minimizer exists."""
        if not np.isfinite(self.loss.target(self.data.y)).all():
            return float("nan")
        bound = known_lower_bound(self.model, self.data, self.loss)
        return float("nan") if bound is None else bound.value


def _training(setting: Setting, params: Params) -> Row:
    x, y = setting.data.x, setting.data.y
    (value, f), g = _loss_and_gradient(setting.model, setting.loss, params, x, y)
    return {
        "train_loss": float(value),
        "train_error": zero_one_error(f, y),
        "gradient_norm": _norm(g.values()),
        "norm": _norm(params.values()),
    }


def _sharpness(setting: Setting, params: Params) -> Row:
    value = float(trace(setting.model, params, setting.data, setting.loss))
    gap = Verdict("sharpness", value, setting.bound).gap
    return {"sharpness": value, "bound": setting.bound, "gap": gap}


def _test(setting: Setting, params: Params) -> Row:
    points = setting.population
    if points is None:
        return {"test_loss": float("nan"), "test_error": float("nan")}
    f = setting.outputs(params, points.x)
    return {
        "test_loss": setting.mean_loss(f, points.y),
        "test_error": zero_one_error(f, points.y),
    }


def _norms(setting: Setting, params: Params) -> Row:
    return {f"norm_{name}": _norm([value]) for name, value in params.items()}


def _neurons(setting: Setting, params: Params) -> Row:
    """Neurons of the first layer with σ′ ≠ 0 on some training point: the others get no gradient."""
    if not isinstance(setting.model, MLP):
        return {"active_neurons": float("nan")}
    h = setting.data.x @ params["W1"].T + params.get("b1", 0.0)
    return {"active_neurons": float((setting.model.sigma.slope(h) != 0).any(axis=0).sum())}


MEASURES: dict[str, Callable[[Setting, Params], Row]] = {
    "training": _training,
    "sharpness": _sharpness,
    "test": _test,
    "norms": _norms,
    "neurons": _neurons,
}


class Log(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="log"):
    """When metrics are evaluated, and which.

    `points` are spread over the phases, log-spaced from the start of each; or `epochs`, counted
    from the start of the run. The start, every phase's end and the run's end are always logged.
    `snapshots` of these points, evenly spread, keep their parameters where `train` is given a
    folder for them. `measures` are names in `MEASURES`; "training" is always among them.
    """

    points: int = 200
    epochs: tuple[int, ...] | None = None
    snapshots: int = 12
    measures: tuple[str, ...] = tuple(MEASURES)

    def __post_init__(self):
        if self.points < 1 or self.snapshots < 0:
            raise FlattestError("A log needs at least one point, and no negative snapshots.")
        for name in self.measures:
            if name not in MEASURES:
                raise unknown("measure", name, MEASURES)

    def row(self, setting: Setting, params: Mapping[str, np.ndarray]) -> Row:
        """The metrics at θ, in float64 whatever the precision of θ."""
        exact = {name: np.asarray(value, np.float64) for name, value in params.items()}
        row: Row = {}
        # Shortly before it diverges, a network's metrics may be too large for float64: inf is true.
        with np.errstate(over="ignore", invalid="ignore"):
            for name in dict.fromkeys(("training", *self.measures)):
                row |= MEASURES[name](setting, exact)
        return row

    def schedule(self, lengths: Sequence[int]) -> "Schedule":
        """The points for phases of these lengths."""
        if self.epochs is not None:
            every = sorted({e for e in self.epochs if 0 < e < sum(lengths)})
            return Schedule(tuple(() for _ in lengths), tuple(every), self.snapshots)
        each = max(1, self.points // len(lengths))
        return Schedule(tuple(log_spaced(length, each) for length in lengths), (), self.snapshots)


@dataclass(frozen=True)
class Schedule:
    """Log points counted from the phases' starts (`local`) and from the run's (`everywhere`).

    Counted from a phase's start, since a phase may end early by its loss.
    """

    local: tuple[tuple[int, ...], ...]
    everywhere: tuple[int, ...]
    snapshots: int

    def distance(self, phase: int, phase_epoch: int, epoch: int) -> float:
        """Epochs until the next point after this one; infinite if there is none."""
        ahead = [e - phase_epoch for e in self.local[phase] if e > phase_epoch][:1]
        ahead += [e - epoch for e in self.everywhere if e > epoch][:1]
        return min(ahead, default=float("inf"))

    def is_due(self, phase: int, phase_epoch: int, epoch: int) -> bool:
        return phase_epoch in self.local[phase] or epoch in self.everywhere

    def keeps(self, index: int) -> bool:
        """Whether the log's point number `index` is among the snapshots."""
        planned = 1 + len(self.everywhere) + sum(map(len, self.local))
        chosen = np.linspace(0, planned - 1, self.snapshots).round() if self.snapshots else ()
        return index in chosen


def log_spaced(length: int, points: int) -> tuple[int, ...]:
    """At most `points` distinct epochs from 1 to `length`, evenly spaced in their logarithm."""
    return tuple(int(e) for e in np.unique(np.geomspace(1, length, points).round()))


def draw_population(data: Dataset, size: int, seed: int) -> Population | None:
    """The test points: the whole support where it has at most `size` points, else a sample."""
    if data.distribution is None:
        return None
    points = data.distribution.population(size, seed)
    if len(points.y) <= size:
        return points
    return Population(*data.distribution.sample(generator(seed, "population"), size), exact=False)


def stagnated_at(series: Series, setting: Setting, weight_decay: bool) -> int | None:
    """The step since which a run has been stuck above its minimum, None if it is not.

    Let e = L − min L and c the same for the best constant output. A point with e > c/1000 is stuck
    - at a critical point of L, if ‖θ‖ ‖∇L(θ)‖ ≤ 10⁻⁶ e (no relative change of θ matters);
    - in collapse, if e ≥ 0.99 c: the network is no better than a constant (the saddle at 0);
    - standing still, if its loss equals the final one to 10⁻⁹ e, except under weight decay, whose
      minimum has L > min L.
    The run has stagnated if its points are stuck from some point to the end, over at least 1000
    steps and half of its epochs.
    """
    least, epoch, step = setting.least_loss, series["epoch"], series["step"]
    excess, scale = series["train_loss"] - least, setting.constant_loss - least
    critical = series["norm"] * series["gradient_norm"] <= 1e-6 * excess
    collapsed = (excess >= 0.99 * scale) & (scale > 0)
    # Every point is compared with the last one, and that with the one before it.
    other = np.append(np.full(len(excess) - 1, excess[-1]), excess[-2])
    still = (np.abs(excess - other) <= 1e-9 * excess) & (not weight_decay)
    stuck = (excess > 1e-3 * scale) & (critical | collapsed | still)
    moving = np.flatnonzero(~stuck)
    first = moving[-1] + 1 if len(moving) else 0
    if first >= len(stuck) - 1 or step[-1] - step[first] < _PATIENCE:
        return None
    return int(step[first]) if 2 * epoch[first] <= epoch[-1] else None


def _norm(arrays) -> float:
    return float(np.sqrt(sum(np.sum(np.square(np.asarray(value))) for value in arrays)))


@partial(jax.jit, static_argnums=(0, 1))
def _loss_and_gradient(model: Model, loss: Loss, params: Params, x, y):
    """(L(θ), f_θ on the training set) and ∇L(θ)."""

    def mean_loss(params):
        f = model.apply(params, x, x)
        return jnp.mean(loss.value(f, y)), f

    return jax.value_and_grad(mean_loss, has_aux=True)(params)


@partial(jax.jit, static_argnums=0)
def _outputs(model: Model, params: Params, x, train_x):
    """f_θ by chunks of rows whose pre-activations stay in the processor's cache, which is several
    times as fast as all rows at once."""

    def output(row):
        return model.apply(params, row[None], train_x)[0]

    return lax.map(output, x, batch_size=_ROWS_AT_ONCE)
