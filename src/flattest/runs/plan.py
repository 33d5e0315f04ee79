"""What is to be done: the runs of experiments that the store does not have."""

from collections.abc import Iterable

import msgspec

from flattest.errors import visible
from flattest.experiments.experiment import Experiment, Seeds, Task, VariantName
from flattest.experiments.registry import experiment
from flattest.runs.store import Store


class Job(msgspec.Struct, frozen=True):
    """One run to do: a task and its seed, the run's key, and the experiment that asks for it."""

    task: Task
    seed: int
    key: str
    label: str

    @property
    def name(self) -> str:
        return visible(f"{self.label} seed {self.seed}")


def with_needed(chosen: Iterable[Experiment], variant: VariantName) -> list[Experiment]:
    """The experiments and those that their expectations compare with, each once.

    By key, since a user's spec may bear the name of another experiment and does not replace it.
    """
    chosen = list(chosen)
    needed = (experiment(name) for e in chosen for name in e.variant(variant).needs)
    return list({e.key: e for e in (*chosen, *needed)}.values())


def plan(
    chosen: Iterable[Experiment], variant: VariantName, store: Store, seeds: Seeds = None
) -> list[Job]:
    """The runs that are not done, each once, asked for in the store; the longest first.

    One whose results cannot be read is to be done again.
    """
    jobs: dict[str, Job] = {}
    for e in chosen:
        v = e.variant(variant)
        label = e.name if variant == "full" else f"{e.name}:quick"
        for seed in v.chosen(seeds):
            key = store.add(v.task, seed, label)
            found = store.run(key)
            if found is None or not found.examined().done:
                jobs.setdefault(key, Job(v.task, seed, key, label))
    return sorted(jobs.values(), key=lambda job: -job.task.cost)
