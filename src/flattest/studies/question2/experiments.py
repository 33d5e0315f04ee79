"""What in 1-SAM memorizes? Its steps as they are, and with the activation pattern kept.

    flattest run 'question2/*'           minutes on two cores
    flattest run 'question2/*' --full    the paper's epochs; the networks with three layers take
                                         ten minutes per seed, the others one or two

Each panel is one of wen2023's where 1-SAM is flattest and does not generalize, with one thing
changed: in the perturbed pass every neuron stays on the linear piece of σ that it is on before
(`ft.sam(…, pattern="kept")`). If crossing kinks is what memorizes, these generalize, as flat.

The expectations at full scale are predictions: they were committed before the runs, which a test
compares with the commit that the runs name.
"""

import msgspec

import flattest as ft
from flattest.experiments.expectations import (
    AnyExpectation,
    AtMostInEverySeed,
    RatioAtMost,
)
from flattest.papers.wen2023 import experiments as wen2023
from flattest.papers.wen2023.experiments import flattest, perfect

replace = msgspec.structs.replace
PANELS = {experiment.panel: experiment for experiment in wen2023.EXPERIMENTS}


def better_than(panel: str, factor: float) -> RatioAtMost:
    """A test error at most 1/factor of the panel's."""
    return RatioAtMost(other=f"wen2023/{panel}", series="test_error", at="tail", ratio=1 / factor)


def always_perfect(error: float = 0.01) -> AtMostInEverySeed:
    return AtMostInEverySeed(series="test_error", at="tail", value=error)


def _kept(variant: ft.Variant, seeds: int, expectations: tuple[AnyExpectation, ...]) -> ft.Variant:
    phases = tuple(replace(phase, pattern="kept") for phase in variant.task.phases)
    return ft.Variant(replace(variant.task, phases=phases), seeds, expectations)


def _intervention(
    name: str,
    panel: str,
    statement: str,
    seeds: int,
    predictions: tuple[AnyExpectation, ...],
    quick: tuple[AnyExpectation, ...],
) -> ft.Experiment:
    printed = PANELS[panel]
    return ft.Experiment(
        name=f"question2/{name}",
        figure=f"{printed.figure}, with the pattern kept",
        statement=statement,
        quick=_kept(printed.quick, 2, quick),
        full=_kept(printed.full, seeds, predictions),
    )


EXPERIMENTS = (
    _intervention(
        "kept-bias",
        "fig4b",
        "With bias, 1-SAM that crosses no kink is as flat and generalizes perfectly.",
        10,
        (always_perfect(), flattest(0.05), better_than("fig4b", 10)),
        (perfect(0.1), flattest(0.1), better_than("fig4b", 2)),
    ),
    _intervention(
        "kept-logistic",
        "fig9b",
        "With the logistic loss and bias, 1-SAM that crosses no kink is as flat and generalizes.",
        10,
        (perfect(0.05), flattest(0.05), better_than("fig9b", 3)),
        (perfect(0.1), flattest(0.1), better_than("fig9b", 2)),
    ),
    _intervention(
        "kept-three-layers",
        "fig11b",
        "With three layers and bias, 1-SAM that crosses no kink is as flat and generalizes.",
        5,
        (perfect(0.05), flattest(0.05), better_than("fig11b", 3)),
        (better_than("fig11b", 1.5),),
    ),
)
