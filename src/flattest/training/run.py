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
    one entry for each logged epoch. The gap is sharpness/bound − 1; the bound holds for
    interpolators, so that the gap of a network with a positive loss may be a little below 0.
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
