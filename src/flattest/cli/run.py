"""Run experiments, keep their results in the store, and say whether the papers' statements hold.

What is done is skipped and what was interrupted is resumed, so the same command can be given again
at any time, also while another is at work on the same store.

Examples:

    flattest run fig4b                      Figure 4b of wen2023, quick, assessed
    flattest run 'fig*' --full              every panel at the paper's own epochs
    flattest run 'wen2023/*' --seeds 5      five seeds each
    flattest run fig1b --workers 1          in this process, without a cluster
    flattest run fig1b --scheduler tcp://host:8786   on a Dask cluster that shares this folder
    flattest run fig4b --set width=200 --set rho=0.1 --seed 7   settings of your own, one seed
    flattest run fig4b --seeds 3:8          seeds 3 … 7
    flattest list fig4b --json > mine.json  edited, it is an experiment of your own:
    flattest run mine.json

A setting is the name of a field, as `flattest list fig4b --json` shows them, in every phase that
has it; log.points says in which part it is. What is changed runs under a name of its own, own/…, in
place of the paper's, and nothing is expected of it.
"""

from pathlib import Path
from typing import Annotated

import tyro
from rich.markup import escape

from flattest.cli._options import (
    DEFAULT_STORE,
    Full,
    Json,
    Patterns,
    Quick,
    Scheduler,
    Seeds,
    StoreFolder,
    Workers,
    look_at,
    mark,
    output,
    parsed_seeds,
    variant_name,
)
from flattest.errors import FlattestError
from flattest.experiments.experiment import Experiment
from flattest.experiments.registry import matching, read_experiment
from flattest.experiments.settings import changed, under_its_own_name
from flattest.problem.randomness import checked_seed
from flattest.runs.questions import ask_own
from flattest.runs.results import Assessment
from flattest.runs.run import run_experiments
from flattest.runs.store import Store


def command(
    patterns: Patterns,
    quick: Quick = False,
    full: Full = False,
    seeds: Seeds = None,
    seed: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help="This seed alone, in place of --seeds.")
    ] = None,
    settings: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        tyro.conf.arg(name="set", metavar="NAME=VALUE", help="A setting, as often as you like."),
    ] = (),
    workers: Workers = None,
    scheduler: Scheduler = None,
    folder: StoreFolder = DEFAULT_STORE,
    as_json: Json = False,
) -> int:
    variant = variant_name(quick, full)
    chosen = [changed(e, settings) for e in selected(patterns)]
    wanted = only(seed, parsed_seeds(seeds))
    store = Store.create(folder)
    ask_own(store, chosen, variant, wanted)
    assessments = run_experiments(chosen, variant, store, wanted, workers, scheduler)
    output(as_json, assessments, "\n\n".join(map(text, assessments)), then=look_at(folder))
    return 0 if all(assessment.met for assessment in assessments) else 1


def only(seed: int | None, seeds: int | range | None) -> int | range | None:
    if seed is None:
        return seeds
    if seeds is not None:
        raise FlattestError("--seed and --seeds exclude each other.")
    return range(checked_seed(seed), seed + 1)


def selected(patterns: tuple[str, ...]) -> list[Experiment]:
    """The experiments named: patterns, and spec files (a path that ends in .json or .toml)."""
    if not patterns:
        raise FlattestError("Say what to run: a name, a pattern such as 'fig*', or a spec file.")
    files = [p for p in patterns if Path(p).suffix in (".json", ".toml")]
    names = [p for p in patterns if p not in files]
    read = [under_its_own_name(read_experiment(Path(p))) for p in files]
    return (matching(*names) if names else []) + read


def text(assessment: Assessment) -> str:
    """The assessment as lines: the statement, then every expectation with its evidence."""
    name = f"[bold]{escape(assessment.experiment)}[/] ({assessment.variant})"
    lines = [f"{mark(assessment.met)} {name}: {escape(assessment.statement)}"]
    lines += [
        f"  {mark(verdict.holds)} {escape(verdict.sentence)}" for verdict in assessment.verdicts
    ]
    lines += [
        f"  seed {run.seed} {run.status}: {escape(run.sentence)} (run {run.key})"
        for run in assessment.runs
        if run.status not in ("finished", "pending")
    ]
    if not assessment.verdicts and not assessment.missing:
        lines.append(f"  nothing is expected of the {assessment.variant} variant")
    if assessment.missing:
        lines.append(f"  {mark(False)} {assessment.missing} runs have no result.")
    return "\n".join(lines)
