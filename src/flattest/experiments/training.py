"""The task of training one network on one draw of data."""

import math
from typing import Literal

from flattest.errors import FlattestError
from flattest.experiments.experiment import Task, Workplace
from flattest.problem.distributions import AnyDistribution
from flattest.problem.losses import MSE, Loss
from flattest.problem.models import AnyModel, is_by_neuron, shapes
from flattest.training.algorithms import Phase
from flattest.training.flows import Flow
from flattest.training.log import Log
from flattest.training.run import Run


class Training(Task, frozen=True, tag="training"):
    """Train `model` on n points of `distribution` by the phases.

    The seed decides the training set, the initial parameters, the order of samples, the label
    noise and the test points, each by a stream of its own.
    """

    distribution: AnyDistribution
    n: int
    model: AnyModel
    phases: tuple[Phase | Flow, ...]
    loss: Loss = MSE()
    log: Log = Log()
    test_size: int = 10_000
    backend: Literal["auto", "jax", "fused"] = "auto"
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        if self.n < 1:
            raise FlattestError(f"There must be at least one training point, not n = {self.n}.")
        if not self.phases:
            raise FlattestError("A training experiment needs at least one phase.")
        for phase in self.phases:
            phase.check(self.n)

    @property
    def cost(self) -> float:
        """Multiplications in the products with weight matrices, an order of magnitude."""
        weights = sum(map(math.prod, shapes(self.model, self.distribution.d).values()))
        return sum(map(self.samples, self.phases)) * float(weights)

    def samples(self, phase: Phase | Flow) -> int:
        """How often the network is evaluated on a sample in this phase.

        Sim-BN needs the whole training set at every step, SAM's second gradient as much again; a
        flow takes about ten steps of five evaluations in an epoch.
        """
        steps = phase.length(self.n) * phase.steps_per_epoch(self.n)
        if isinstance(phase, Flow):
            return 50 * steps * self.n
        batch = self.n if is_by_neuron(self.model) else phase.batch or self.n
        return steps * batch * (2 if phase.rho > 0 else 1)

    def check(self) -> None:
        """Raises, before anything is run, unless a first draw of data, the network, the loss and
        the algorithm fit together."""
        from flattest.curvature.inputs import attempt
        from flattest.training.checks import checked

        kind = getattr(self.distribution, "kind", type(self.distribution).__name__)
        data = attempt(f"Drawing from {kind} failed", self.distribution.draw, self.n, 0)
        checked(self.model, data, self.phases, self.loss)

    def load_libraries(self) -> None:
        from flattest.problem.libraries import torch_model

        if torch_model(self.model) is not None:
            import torch  # noqa: F401

    def execute(self, seed: int, place: Workplace) -> Run:
        from flattest.training.train import train  # brings the engines along

        return train(
            self.model,
            self.distribution.draw(self.n, seed),
            self.phases,
            seed=seed,
            loss=self.loss,
            backend=self.backend,
            dtype=self.dtype,
            log=self.log,
            test_size=self.test_size,
            checkpoint=place.scratch,
            snapshots=place.checkpoints,
            progress=lambda so_far: place.progress(so_far.fraction, so_far.step, so_far.series),
        )
