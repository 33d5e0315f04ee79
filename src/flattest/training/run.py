"""A run: what one seed produced, from training to the page."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from flattest.errors import require_known


class Run(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one seed produced: its series, and for a trained network its parameters.

    series: named float64 arrays. Of training: epoch, step, phase, train_loss, train_error,
    gradient_norm, norm, sharpness, bound, gap, test_loss, test_error, norm_W1, …, active_neurons,
    one entry for each logged epoch; of a flow also crossing_time, crossing_count and crossing_jump,
    one for each of its steps that crossed kinks. The gap is sharpness/bound − 1; the bound holds
    for interpolators, so that the gap of a network with a positive loss may be a little below 0.
    status: "finished", "diverged" or "stagnated"; step: the number of updates at the end, or when
    that happened; sentence: the same in words. params: at the end, of a diverged run those before
    the epoch in which it diverged. backend: the engine, and `reason` why it was not the fused one.
    notes: what went otherwise than asked, such as damaged checkpoints.
    """

    series: Mapping[str, np.ndarray]
    params: Mapping[str, np.ndarray] | None = None
    seed: int = 0
    status: str = "finished"
    sentence: str = ""
    step: int = 0
    epoch: int = 0
    seconds: float = 0.0
    backend: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """What came out, in a few lines; `series` and `params` have the rest."""
        shown = ("train_loss", "train_error", "test_error", "sharpness", "bound")
        last = {name: float(self[name][-1]) for name in shown if name in self.series}
        lines = [f"Run of seed {self.seed}, {self.status}: {self.sentence}".rstrip(": ")]
        if last:
            lines.append("  at the end: " + ", ".join(f"{k} {v:.4g}" for k, v in last.items()))
        lines.append(f"  series: {', '.join(self.series)}")
        if self.params is not None:
            shapes = (f"{name} {np.shape(value)}" for name, value in self.params.items())
            lines.append(f"  params: {', '.join(shapes)}")
        if self.backend:
            why = f" ({self.reason})" if self.reason else ""
            lines.append(f"  {self.step} steps in {self.seconds:.1f} s, engine {self.backend}{why}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def __getitem__(self, name: str) -> np.ndarray:
        """A series by name, as an array of at least one dimension."""
        require_known("series", name, self.series)
        return np.atleast_1d(self.series[name])


class Progress(NamedTuple):
    """What the progress callback gets, about once a second and at the end."""

    fraction: float
    epoch: int
    step: int
    series: dict[str, np.ndarray]
