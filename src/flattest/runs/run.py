"""Experiments × seeds → store: skips what is done, resumes what was interrupted."""

from collections.abc import Iterable
from functools import partial

from rich.console import Console

from flattest.experiments.experiment import Experiment, Seeds, VariantName
from flattest.runs.plan import plan, with_needed
from flattest.runs.results import Assessment, assess
from flattest.runs.store import Store
from flattest.runs.user_file import Reference
from flattest.runs.work import do


def run_experiments(
    chosen: Iterable[Experiment],
    variant: VariantName,
    store: Store,
    seeds: Seeds = None,
    workers: int | None = None,
    scheduler: str | None = None,
    console: Console | None = None,
    preload: Reference | None = None,
) -> list[Assessment]:
    """Run the experiments that are not done, then say whether the results are as expected.

    `seeds` overrides each experiment's own number: so many from 0 on, or those of a range.
    `workers` processes are started (by default one per core; with 1 the work is done in this
    process), unless the address of a Dask `scheduler` is given. Runs that failed are tried again.
    `preload` is a user's function that every worker calls first, for what it makes and registers.
    """
    chosen = list(chosen)
    jobs = plan(with_needed(chosen, variant), variant, store, seeds)
    if jobs:
        from flattest.runs.progress import shown  # slow to import, and not needed to list

        console = console or Console(stderr=True)
        with shown(store, jobs, console):
            do(jobs, store, workers, scheduler, preload, partial(console.print, markup=False))
    return [assess(e, variant, store, seeds) for e in chosen]
