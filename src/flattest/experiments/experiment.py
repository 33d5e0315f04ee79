"""Experiments: one declarative spec per figure panel.

An experiment says what the paper states, what to run (a `Task`, in a quick variant and at the
paper's full scale) and what must come out (`expectations`, fields that are assessed).

There are two kinds of tasks: `Training` (flattest.experiments.training), which trains a network and
resumes where it was interrupted, and subclasses of `Computed`, whose `compute(seed)` is a pure
function:

    class Sweep(Computed, frozen=True, tag="vardhan2026/sweep"):
        d: int = 30

        def compute(self, seed):
            return {"flatness": ..., "population_loss": ...}

    EXPERIMENTS = (
        Experiment(
            name="vardhan2026/section6-relu",
            figure="Figure 1, left",
            statement="Flatter interpolators have a smaller population loss.",
            quick=Variant(Sweep(d=10), seeds=2, expectations=(RankCorrelation(...),)),
            full=Variant(Sweep(), seeds=5, expectations=(RankCorrelation(...),)),
        ),
    )

A run's key hashes the task and the seed, and nothing else: two panels that train the same network
share its runs, and an expectation can be changed without training again. `Experiment.key` hashes
all of the experiment, expectations included: an assessment belongs to that key.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec
import numpy as np

from flattest.errors import FlattestError
from flattest.experiments.expectations import AnyExpectation
from flattest.training.keys import digest, keys_by_seed
from flattest.training.run import Run

VariantName = Literal["quick", "full"]
# So many from 0 on, or these; None: as many as the variant says.
Seeds = int | Sequence[int] | None
VARIANTS: tuple[VariantName, ...] = ("quick", "full")


class Workplace(Protocol):
    """Where one seed's work is done: folders of its own, and a place to report progress to."""

    scratch: Path
    checkpoints: Path

    def progress(self, fraction: float, step: int, series: Mapping[str, Any]) -> None: ...


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is run for one seed. Its fields are all that affects the result.

    A subclass needs a tag of its own, `class Sweep(Computed, frozen=True, tag="paper/sweep")`.
    """

    @property
    def cost(self) -> float:
        """How long it takes, in any unit the tasks share: long ones are started first."""
        return 1.0

    def load_libraries(self) -> None:
        """Import the libraries that have threads of their own: those that are there when the work
        begins have one, and what is imported later has as many as it likes."""

    def execute(self, seed: int, place: Workplace) -> Run:
        """Do the work, reporting progress to `place` and resuming from what is in its scratch."""
        raise NotImplementedError

    def columns(self, series: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        """The columns of a summary for one seed's series, by name; NaN where one has no meaning.

        Where a task names none, they are the last tenths of the series of training.
        """
        return {}


class Computed(Task, frozen=True):
    """A task that is a pure function of its fields and the seed."""

    def compute(self, seed: int) -> Mapping[str, Any]:
        """Named arrays of numbers, of any shapes."""
        raise NotImplementedError

    def execute(self, seed: int, place: Workplace) -> Run:
        return Run(series=self.compute(seed), seed=seed)


T = TypeVar("T")


class Variant(msgspec.Struct, Generic[T], frozen=True, forbid_unknown_fields=True):
    """A task at one scale, how many seeds it is run with (0, 1, …) and what must come out."""

    task: T
    seeds: int = 5
    expectations: tuple[AnyExpectation, ...] = ()

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise FlattestError(f"An experiment needs at least one seed, not {self.seeds}.")

    def chosen(self, seeds: Seeds = None) -> Sequence[int]:
        """Which seeds: its own number of them, unless another number, or seeds, are asked for."""
        if isinstance(seeds, Sequence):
            return seeds
        if seeds is not None and seeds < 1:
            raise FlattestError(f"The number of seeds must be at least 1, not {seeds}.")
        return range(self.seeds if seeds is None else seeds)

    def keys(self, seeds: Seeds = None) -> list[list[str]]:
        """For each seed the keys that its run may have, the present engine's first."""
        keys = keys_by_seed(self.task)
        return [list(keys(seed)) for seed in self.chosen(seeds)]

    @property
    def needs(self) -> set[str]:
        """The other experiments its expectations compare with."""
        return {e.other for e in self.expectations if hasattr(e, "other")}


class Experiment(msgspec.Struct, Generic[T], frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One panel: what the paper states, in a sentence, and how it is run and assessed.

    `name` is "paper/panel". `notes` says where the paper's setting is unknown or departed from.
    """

    name: str
    figure: str
    statement: str
    quick: Variant[T]
    full: Variant[T]
    notes: str = ""

    def __post_init__(self) -> None:
        if not all(self.name.partition("/")):
            raise FlattestError(f"An experiment's name is 'paper/panel', not {self.name!r}.")

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    @property
    def panel(self) -> str:
        """The short name."""
        return self.name.partition("/")[2]

    @property
    def key(self) -> str:
        """The hash of the whole experiment; an assessment belongs to this key."""
        return digest(self)

    def variant(self, name: VariantName) -> Variant[T]:
        return getattr(self, name)
