"""What a run logs and when: named measures at log-spaced epochs of every phase."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from flattest.errors import FlattestError, require_known
from flattest.problem.checks import check_count

# Each has a function of its name in `metrics.METRICS`.
MEASURES = ("training", "sharpness", "test", "norms", "neurons")


MOST_POINTS = 1_000_000


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
    # Written out: the runs of a log by default keep their keys when there are more measures.
    measures: tuple[str, ...] = ("training", "sharpness", "test", "norms", "neurons")

    def __post_init__(self):
        check_count("A log's points", self.points)
        check_count("A log's snapshots", self.snapshots, 0)
        for what, count in (("points", self.points), ("snapshots", self.snapshots)):
            if count > MOST_POINTS:
                raise FlattestError(f"A log has at most {MOST_POINTS} {what}, not {count}.")
        epochs = () if self.epochs is None else self.epochs
        for what, given in (("epochs", epochs), ("measures", self.measures)):
            if not isinstance(given, tuple | list):
                raise FlattestError(f"A log's {what} are a tuple, not {given!r}.")
        for epoch in epochs:
            check_count("A logged epoch", epoch, 0)
        for name in self.measures:
            require_known("measure", name, MEASURES)

    def schedule(self, lengths: Sequence[int]) -> "Schedule":
        """The points for phases of these lengths."""
        if self.epochs is not None:
            within = {e for e in self.epochs if 0 < e < sum(lengths)}
            return Schedule(tuple(() for _ in lengths), tuple(sorted(within)), self.snapshots)
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
