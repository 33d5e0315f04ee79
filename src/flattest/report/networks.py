"""Inside a network: its first layer at every checkpoint, and what each neuron does.

A neuron *memorizes* where more than half of Σ_i σ(w·x_i + b)² comes from one training point; it
*generalizes* where more than half of ‖w‖² lies on the inputs that the label depends on (for xor
data ±x[1] ± x[2], Figure 2b of wen2023); it is *silent* where it is 0 on every training point.
"""

import base64
from typing import Any

import msgspec
import numpy as np

from flattest.experiments.training import Training
from flattest.problem.data import Dataset
from flattest.problem.distributions import CompleteXor, Xor
from flattest.problem.models import MLP, largest_neurons
from flattest.report.views import rounded
from flattest.runs.store import StoredRun

NEURONS_AT_MOST = 160
DOES = ("generalizes", "mixed", "memorizes", "silent")
GENERALIZES, MIXED, MEMORIZES, SILENT = range(4)


class Moment(msgspec.Struct, frozen=True):
    """A network after `epoch` epochs.

    `weights` are the shown rows of W1 as signed bytes, 127 for `scale`; `active` a bit for each
    shown neuron and training point; `does` an index into `DOES` for each shown neuron. `counts`
    are those of all neurons, `shares` their parts of the output, in the order of `DOES`;
    `points_per_neuron` is the mean over neurons, by their part of the output, of how many training
    points share a neuron's activation, (Σ r²)² / Σ r⁴. `largest` are Figure 2b's rows (W1[1],
    W1[2], ‖W1[3:d]‖) of the neurons of largest norm.
    """

    epoch: int
    scale: float
    weights: str
    active: str
    does: list[int]
    counts: list[int]
    shares: list[float]
    points_per_neuron: float
    largest: list[list[float]]


class NetworkView(msgspec.Struct, frozen=True):
    """The checkpoints of a run. Rows and columns keep their order over all of them: neurons by
    what they do in the end, training points by their relevant inputs, else by their label.

    One that cannot be read has a `problem` and nothing else.
    """

    width: int = 0
    neurons: int = 0
    inputs: int = 0
    points: int = 0
    relevant: int = 0
    moments: list[Moment] = []
    problem: str = ""

    @property
    def size(self) -> int:
        """Bytes, about."""
        return sum(len(m.weights) + len(m.active) + 400 for m in self.moments)


def inside(run: StoredRun) -> NetworkView | None:
    """The inside of a run of training; None where it kept no parameters, or is not of an MLP."""
    kept = {c.epoch: c.params() for c in run.checkpoints()}
    if not kept:
        return None
    task = msgspec.convert(run.task(), Training)
    if not isinstance(task.model, MLP):
        return None
    data = task.distribution.draw(task.n, run.seed)
    relevant = 2 if isinstance(task.distribution, Xor | CompleteXor) else 0
    seen = {epoch: Neurons(task.model, params, data, relevant) for epoch, params in kept.items()}
    rows = seen[max(seen)].order()
    columns = np.lexsort(np.sign(data.x[:, :relevant]).T[::-1] if relevant else [data.y])
    return NetworkView(
        width=task.model.width,
        neurons=len(rows),
        inputs=data.d,
        points=data.n,
        relevant=relevant,
        moments=[neurons.moment(epoch, rows, columns) for epoch, neurons in sorted(seen.items())],
    )


class Neurons:
    """What the neurons of one set of parameters do on the training points."""

    def __init__(self, model: MLP, params: Any, data: Dataset, relevant: int) -> None:
        params = {name: np.asarray(value, float) for name, value in params.items()}
        model.check(params, data.d)
        self.W1 = params["W1"]
        self.r = np.asarray(model.first_layer(params, data.x))
        self.part = _part_of_output(model, params, self.r)
        squares = self.r**2
        total = np.maximum(squares.sum(axis=0), np.finfo(float).tiny)
        self.points = total**2 / np.maximum((squares**2).sum(axis=0), np.finfo(float).tiny)
        self.does = self._does(squares.max(axis=0) / total, relevant)

    def _does(self, largest_share: np.ndarray, relevant: int) -> np.ndarray:
        norms = np.maximum((self.W1**2).sum(axis=1), np.finfo(float).tiny)
        on_relevant = (self.W1[:, :relevant] ** 2).sum(axis=1) / norms
        cases = [(self.r == 0).all(axis=0), largest_share > 0.5, on_relevant > 0.5]
        return np.select(cases, [SILENT, MEMORIZES, GENERALIZES], MIXED)

    def order(self) -> np.ndarray:
        """The neurons that matter most, sorted by what they do and where they are most active."""
        most = np.argsort(-self.part, kind="stable")[:NEURONS_AT_MOST]
        signs = 2 * (self.W1[:, 0] > 0) + (self.W1[:, min(1, self.W1.shape[1] - 1)] > 0)
        where = np.where(self.does == GENERALIZES, signs, self.r.argmax(axis=0))
        return most[np.lexsort((-self.part[most], where[most], self.does[most]))]

    def moment(self, epoch: int, rows: np.ndarray, columns: np.ndarray) -> Moment:
        shown = self.W1[rows]
        scale = float(np.abs(shown).max()) or 1.0
        weights = np.round(127 * shown / scale).astype(np.int8)
        active = np.packbits(self.r[np.ix_(columns, rows)].T != 0)
        kinds = range(len(DOES))
        total = self.part.sum() or 1.0
        return Moment(
            epoch=epoch,
            scale=scale,
            weights=base64.b64encode(weights.tobytes()).decode(),
            active=base64.b64encode(active.tobytes()).decode(),
            does=self.does[rows].tolist(),
            counts=[int((self.does == kind).sum()) for kind in kinds],
            shares=rounded(np.array([self.part[self.does == k].sum() / total for k in kinds])),
            points_per_neuron=float(self.points @ self.part / total),
            largest=rounded(largest_neurons(self.W1)),
        )


def _part_of_output(model: MLP, params: dict[str, np.ndarray], r: np.ndarray) -> np.ndarray:
    """‖outgoing weights‖ times the root mean square of the neuron's output over the data.

    Sim-BN divides by that root mean square and multiplies by γ.
    """
    W2 = params["W2"]
    outgoing = np.abs(W2) if W2.ndim == 1 else np.linalg.norm(W2, axis=0)
    if model.normalization.by_neuron:
        return outgoing * np.abs(params["gamma"]) * (r != 0).any(axis=0)
    return outgoing * np.sqrt((r**2).mean(axis=0))
