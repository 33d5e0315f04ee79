"""Draw the figures of experiments from what the store has; nothing is trained.

Each is written as PNG, SVG and PDF. Training of your own (a spec file, a judged setup) is drawn as
curves, a sweep as its phase diagram.

Examples:

    flattest run fig3 && flattest plot fig3          of the quick runs, into out/figures
    flattest plot 'mulayoff2021/*' --full --out docs/figures
    flattest plot 'judge/label-*'                    a setup that was judged
    flattest plot 'sweep/leaky-*'                    the phase diagram of one that was swept
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from flattest.cli._options import (
    DEFAULT_STORE,
    Full,
    Patterns,
    Quick,
    Seeds,
    StoreFolder,
    console,
    parsed_seeds,
    variant_name,
)
from flattest.errors import FlattestError
from flattest.experiments.experiment import Experiment
from flattest.experiments.registry import figures, papers
from flattest.runs.questions import Question, asked_for, is_called, questions
from flattest.runs.results import how_to_run, results, seeds_at_hand
from flattest.runs.store import Store


def command(
    patterns: Patterns,
    quick: Quick = False,
    full: Full = False,
    seeds: Seeds = None,
    folder: StoreFolder = DEFAULT_STORE,
    out: Annotated[
        Path, tyro.conf.arg(metavar="DIR", help="Where the figures go, a folder per paper.")
    ] = Path("out/figures"),
) -> int:
    from flattest.report.figure import save

    if not patterns:
        raise FlattestError("Say what to draw: a name, or a pattern such as 'mulayoff2021/*'.")
    variant, asked = variant_name(quick, full), parsed_seeds(seeds)
    store = Store.open(folder)
    runs = store.runs()
    swept = [q for q in questions(store) if q.kind == "diagram" and is_wanted(q, patterns)]
    rest = [pattern for pattern in patterns if pattern not in {q.name for q in swept}]
    cells = {spec["name"] for q in swept for spec in q.experiments.values()}
    trained = [e for e in asked_for(store, *rest) if e.name not in cells]
    paths = [path for question in swept for path in save_diagram(question, out)]
    for e in trained:
        at_hand = seeds_at_hand(asked, e, variant, runs)
        found, drawings = results(e, variant, store, at_hand), figures_of(e)
        if drawings and not found:
            raise FlattestError(
                f"The store has no finished {variant} run of {e.name}; "
                f"{how_to_run(e.name, variant)} makes them."
            )
        for name, draw in drawings.items():
            paths += save(draw(found), out / e.paper, name)
    if not paths:
        raise FlattestError(
            f"There is no figure of {', '.join(patterns)}; `flattest report` shows its curves."
        )
    console().print("\n".join(map(str, paths)), markup=False)
    return 0


def is_wanted(question: Question, patterns: Sequence[str]) -> bool:
    return any(is_called(question.name, pattern) for pattern in patterns)


def figures_of(e: Experiment) -> dict[str, Any]:
    """A paper's own figures; curves of training that no paper has."""
    from flattest.experiments.training import Training

    if e.paper in papers() or not isinstance(e.full.task, Training):
        return figures(e.name)
    from flattest.lab.curves import curves

    return {e.panel: curves}


def save_diagram(question: Question, out: Path) -> list[Path]:
    from flattest.lab.diagram import phase_diagrams
    from flattest.lab.sweep import read_diagram
    from flattest.report.figure import save

    if question.answer is None:
        raise FlattestError(f"The sweep {question.name} is not done; giving it again goes on.")
    folder, _, name = question.name.partition("/")
    return save(phase_diagrams([read_diagram(question.answer)]), out / folder, name)
