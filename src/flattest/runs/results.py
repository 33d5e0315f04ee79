"""What the store has of experiments, and whether it is what was expected."""

import fnmatch
import math
from collections.abc import Sequence

import msgspec

from flattest.errors import FlattestError
from flattest.evidence import Verdict
from flattest.experiments.expectations import Expectation, Others
from flattest.experiments.experiment import VARIANTS, Experiment, Seeds, VariantName
from flattest.experiments.registry import experiment
from flattest.runs.folder import StoredRun
from flattest.runs.questions import asked_for
from flattest.runs.store import Store
from flattest.training.keys import keys_by_seed
from flattest.training.run import Run


class Assessment(msgspec.Struct, frozen=True):
    """An experiment's expectations on the runs the store has; `key` is that of the experiment.

    It is met if every seed has a result (`missing` have none) and every verdict is.
    """

    experiment: str
    variant: VariantName
    key: str
    statement: str
    met: bool
    runs: tuple[StoredRun, ...]
    missing: int
    verdicts: tuple[Verdict, ...]


def results(e: Experiment, variant: VariantName, store: Store, seeds: Seeds = None) -> list[Run]:
    """What the store has of an experiment: one result for each seed that is done."""
    return [found.run() for found in stored(e, variant, store, seeds) if found.done]


def stored(
    e: Experiment, variant: VariantName, store: Store, seeds: Seeds = None
) -> list[StoredRun]:
    """The runs of an experiment that the store knows, by seed; broken if they cannot be read."""
    v = e.variant(variant)
    found = (store.run_of(v.task, seed) for seed in v.chosen(seeds))
    return [run.examined() if run.done else run for run in found if run is not None]


def seeds_at_hand(
    seeds: Seeds, e: Experiment, variant: VariantName, runs: Sequence[StoredRun]
) -> Seeds:
    """The seeds that are asked for. Where none are: the variant's own, if the runs of a store have
    one of them, else those that they have."""
    if seeds is not None:
        return seeds
    own, own_keys = set(e.variant(variant).chosen()), keys_by_seed(e.variant(variant).task)
    keys = {run.key for run in runs}
    found = [s for s in sorted({run.seed for run in runs}) if keys.intersection(own_keys(s))]
    return None if own.intersection(found) else found or None


def find_runs(store: Store, patterns: Sequence[str]) -> list[StoredRun]:
    """The runs of the experiments that match, also where another experiment asked for them first.

    Runs of experiments that nobody can name any more are found by their label.
    """
    runs = store.runs()
    seeds = sorted({run.seed for run in runs})
    keys: set[str] = set()
    for pattern in patterns:
        labelled = {run.key for run in runs if has_label(run, pattern)}
        try:
            known = asked_for(store, pattern)
        except FlattestError:
            if not labelled:
                raise
            known = []
        own = [keys_by_seed(e.variant(v).task) for e in known for v in VARIANTS]
        keys |= labelled.union(*(keys_of(seed) for keys_of in own for seed in seeds))
    return [run for run in runs if run.key in keys]


def has_label(run: StoredRun, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(n, pattern) for n in (run.label, run.label.partition(":")[0]))


def assess(e: Experiment, variant: VariantName, store: Store, seeds: Seeds = None) -> Assessment:
    """What the runs that are done say of an experiment; none are started.

    An expectation that cannot be assessed, such as a comparison with what was not run, is not met.
    """

    def others(name: str) -> Sequence[Run]:
        found = results(experiment(name), variant, store, seeds)
        if not found:
            raise FlattestError(f"{name} has not been run: {how_to_run(name, variant)} does it.")
        return found

    runs = stored(e, variant, store, seeds)
    here = [found.run() for found in runs if found.done]
    v = e.variant(variant)
    verdicts = tuple(verdict(x, here, others) for x in v.expectations) if here else ()
    missing = len(v.chosen(seeds)) - len(here)
    met = missing == 0 and all(verdict.holds for verdict in verdicts)
    return Assessment(e.name, variant, e.key, e.statement, met, tuple(runs), missing, verdicts)


def how_to_run(name: str, variant: VariantName) -> str:
    """The command that makes an experiment's runs, to be quoted within a sentence."""
    return f"`flattest run {name}{' --full' if variant == 'full' else ''}`"


def verdict(expected: Expectation, here: Sequence[Run], others: Others) -> Verdict:
    try:
        return expected.verdict(here, others)
    except FlattestError as error:
        return Verdict(str(error), math.nan, expected.threshold, expected.side)
