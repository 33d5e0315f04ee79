"""What in 1-SAM memorizes? Its steps as they are, and with the activation pattern kept.

    flattest run 'question2/*'           minutes on two cores
    flattest run 'question2/*' --full    the paper's epochs; the networks with three layers take
                                         ten minutes per seed, the others one or two

Each panel is one of wen2023's where 1-SAM is flattest and does not generalize, with one thing
changed: in the perturbed pass every neuron stays on the linear piece of σ that it is on before
(`ft.sam(…, pattern="kept")`). If crossing kinks is what memorizes, these generalize, as flat.

The panels `same-start-…` set out from one and the same network for each seed, that of gradient
descent at L = 10⁻⁶ (a residual of 10⁻³), and go on for the time 4 of the flow of Tr ∇²L: by the
flow itself with kinks unseen and seen, by 1-SAM (t = ηρ²/2 a step), and by label noise
(t = η²σ²/2 a step).

The expectations at full scale are predictions: they were committed before the runs, which a test
compares with the commit that the runs name. What a trial had shown before is in the notes.
"""

import msgspec

import flattest as ft
from flattest.experiments.expectations import (
    AnyExpectation,
    AtLeast,
    AtMostInEverySeed,
    RatioAtMost,
)
from flattest.experiments.training import Training
from flattest.papers.wen2023 import experiments as wen2023
from flattest.papers.wen2023.experiments import BIAS, NO_BIAS, QUICK_LOG, flattest, perfect, poor

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


TIME = 4.0
START = ft.gd(0.01, epochs=20_000, stop_loss=1e-6)
NETWORKS = {"bias": BIAS, "no-bias": NO_BIAS}
FIGURES = {"bias": "4b", "no-bias": "1b"}


def _onwards(time: float) -> dict[str, ft.Phase | ft.Flow]:
    """The ways on from START, each for the same time of the flow on 100 points."""
    sam_epochs, noise_epochs = (round(time / (100 * each)) for each in (1.25e-5, 2e-6))
    return {
        "flow-unseen": ft.flow(time),
        "flow-seen": ft.flow(time, kinks="seen"),
        "sam": ft.sam(0.01, 0.05, epochs=sam_epochs),
        "sam-kept": ft.sam(0.01, 0.05, epochs=sam_epochs, pattern="kept"),
        "label-noise": ft.label_noise_sgd(0.01, 0.2, epochs=noise_epochs),
    }


TRIAL = (
    "A trial of another program had shown the same for the flows, 1-SAM and label noise, and one "
    "of this program seed 0 of the flows."
)
# By network and way: the statement, and what is predicted of every way.
PREDICTIONS: dict[str, tuple[str, tuple[AnyExpectation, ...]]] = {
    "bias-flow-unseen": (
        "The flow that sees no kinks comes near the least trace and generalizes.",
        (perfect(0.15), flattest(0.1)),
    ),
    "bias-flow-seen": (
        "The flow that sees kinks comes near the least trace and does not generalize.",
        (poor(0.15), flattest(0.1)),
    ),
    "bias-sam": (
        "1-SAM from the same networks comes near the least trace and does not generalize.",
        (poor(0.2), flattest(0.1)),
    ),
    "bias-sam-kept": (
        "1-SAM that crosses no kink comes near the least trace and generalizes.",
        (perfect(0.15), flattest(0.1)),
    ),
    "bias-label-noise": (
        "Label-noise SGD comes near the least trace and generalizes.",
        (perfect(0.15),),
    ),
    "no-bias-flow-unseen": (
        "Without bias the flow that sees no kinks generalizes, above the least trace.",
        (perfect(0.05), AtLeast(series="gap", at="tail", value=0.1)),
    ),
    "no-bias-flow-seen": ("Without bias the flow that sees kinks generalizes.", (perfect(0.05),)),
    "no-bias-sam": ("Without bias 1-SAM from the same networks generalizes.", (perfect(0.05),)),
    "no-bias-sam-kept": ("Without bias 1-SAM that crosses no kink generalizes.", (perfect(0.05),)),
    "no-bias-label-noise": ("Without bias label-noise SGD generalizes.", (perfect(0.05),)),
}


def _same_start(network: str, way: str) -> ft.Experiment:
    def task(width: int, time: float, log: ft.Log) -> Training:
        return Training(
            distribution=ft.Xor(30),
            n=100,
            model=replace(NETWORKS[network], width=width),
            phases=(START, _onwards(time)[way]),
            dtype="float64",
            log=log,
        )

    statement, predictions = PREDICTIONS[f"{network}-{way}"]
    return ft.Experiment(
        name=f"question2/same-start-{network}-{way}",
        figure=f"Figure {FIGURES[network]}, from the same start",
        statement=statement,
        quick=ft.Variant(task(100, 0.5, QUICK_LOG), 2, (flattest(1.0),)),
        full=ft.Variant(task(500, TIME, ft.Log()), 5, predictions),
        notes=TRIAL if network == "bias" else "",
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
    *(_same_start(network, way) for network in NETWORKS for way in _onwards(TIME)),
)
