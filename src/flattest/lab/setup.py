"""A setup: the network, the distribution and the algorithm that the question is asked of.

A user's file defines a function that returns one:

    def setup():
        return ft.Setup(
            name="leaky",
            distribution=ft.Xor(30),
            n=100,
            model=ft.MLP(500, bias=True, activation="leaky_relu:0.1"),
            algorithm=(ft.sam(0.01, 0.05, epochs=20_000),),
            baseline=(ft.gd(0.01, weight_decay=0.05, epochs=20_000),),
        )
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from flattest.errors import FlattestError
from flattest.experiments.expectations import AnyExpectation, AtLeast, AtMost
from flattest.experiments.experiment import Experiment, Task, Variant
from flattest.experiments.training import Training
from flattest.lab.challenge import Challenge, declare
from flattest.problem.data import Dataset, HeldOut
from flattest.problem.distributions import AnyDistribution
from flattest.problem.losses import MSE, Loss
from flattest.problem.models import AnyModel
from flattest.training.algorithms import Phase
from flattest.training.flows import Flow
from flattest.training.log import Log


class Setup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is asked, and how hard.

    `distribution` may be given as a Dataset with held-out examples; n points are drawn from it, by
    default all examples there are. `algorithm` minimizes sharpness, `baseline` (optional) does not.
    `seeds` is the number of runs of each, `challenges` that of attempts to find a flattest
    minimizer that does not generalize, by `challenge` where it is given (a smaller network or a
    training set that meets a theorem's condition), else on the setup itself. A network generalizes
    if its test error is at most `generalizes`.
    """

    name: str
    distribution: AnyDistribution
    n: int = None  # type: ignore[assignment]  # all examples there are
    model: AnyModel
    algorithm: tuple[Phase | Flow, ...]
    baseline: tuple[Phase | Flow, ...] = ()
    loss: Loss = MSE()
    seeds: int = 5
    challenges: int = 2
    challenge: Challenge | None = None
    generalizes: float = 0.1
    log: Log = Log()

    def __post_init__(self) -> None:
        for name in ("algorithm", "baseline"):
            if isinstance(phase := getattr(self, name), Phase | Flow):
                msgspec.structs.force_setattr(self, name, (phase,))
        self._take_examples()
        declare(self)
        for field in msgspec.structs.fields(self):
            _check_kind(field, getattr(self, field.name))
        if not self.name or "/" in self.name:
            raise FlattestError(f"A setup needs a name without a slash, not {self.name!r}.")
        if not self.algorithm:
            raise FlattestError(f"The setup {self.name!r} has no algorithm.")
        if not 0 < self.generalizes < 0.5:
            raise FlattestError(
                f"The test error that counts as generalizing must lie in (0, 0.5), "
                f"not {self.generalizes!r}."
            )

    def _take_examples(self) -> None:
        """Examples given as a dataset are what is drawn from; all are trained on unless n says."""
        if isinstance(data := self.distribution, Dataset):
            if not isinstance(data.distribution, HeldOut):
                raise FlattestError(
                    "A setup's distribution cannot be this Dataset: give held-out examples, "
                    "Dataset(x, y, test=0.2), or the distribution itself, for each seed to draw."
                )
            msgspec.structs.force_setattr(self, "distribution", data.distribution)
        if self.n is None and isinstance(self.distribution, HeldOut):
            msgspec.structs.force_setattr(self, "n", len(self.distribution.rows.y))

    def training(self, phases: tuple[Phase | Flow, ...]) -> Training:
        return Training(
            distribution=self.distribution,
            n=self.n,
            model=self.model,
            phases=phases,
            loss=self.loss,
            log=self.log,
            dtype="float64" if any(isinstance(phase, Flow) for phase in phases) else "float32",
        )

    def check(self) -> None:
        """Raises, before anything is run, unless the parts of the question fit together."""
        for phases in filter(None, (self.algorithm, self.baseline)):
            self.training(phases).check()

    def variants(self, generalizing: Mapping[str, bool]) -> dict[str, Variant[Task]]:
        """What is run, by role: the algorithm, the baseline if there is one, the challenge.

        `generalizing` says of which roles the networks are expected to generalize, or not to.
        """
        trained = {"algorithm": self.algorithm, "baseline": self.baseline}
        tasks: dict[str, tuple[Task, int]] = {
            role: (self.training(phases), self.seeds) for role, phases in trained.items() if phases
        }
        challenge = self.challenge or Challenge(
            distribution=self.distribution, n=self.n, model=self.model, loss=self.loss
        )
        tasks["challenge"] = (challenge, self.challenges)
        return {
            role: Variant(task, seeds, self._expectations(generalizing.get(role)))
            for role, (task, seeds) in tasks.items()
        }

    def _expectations(self, generalizing: bool | None) -> tuple[AnyExpectation, ...]:
        if generalizing is None:
            return ()
        kind = AtMost if generalizing else AtLeast
        return (kind(series="test_error", at="tail", value=self.generalizes),)


def _check_kind(field: msgspec.structs.FieldInfo, value: object) -> None:
    """Refuse what the store could not keep and read back as what the field is."""
    try:
        msgspec.convert(msgspec.to_builtins(value), field.type)
    except (TypeError, msgspec.ValidationError) as error:
        kind = type(value).__name__
        raise FlattestError(f"A setup's {field.name} cannot be this {kind}: {error}.") from error


QUESTIONS = {
    "algorithm": "Whether the algorithm finds a minimum that generalizes.",
    "baseline": "Whether the baseline generalizes.",
    "challenge": "Whether a flattest minimum found on purpose generalizes.",
}


def experiments_of(
    quick: Setup,
    full: Setup,
    prefix: str = "judge",
    generalizing: Mapping[str, bool] = MappingProxyType({}),
) -> dict[str, Experiment]:
    """The experiments that answer the question of a setup, by role."""
    small, large = quick.variants(generalizing), full.variants(generalizing)
    return {
        role: Experiment(
            name=f"{prefix}/{full.name}-{role}",
            figure=full.name,
            statement=QUESTIONS[role],
            quick=small[role],
            full=large[role],
        )
        for role in small
    }
