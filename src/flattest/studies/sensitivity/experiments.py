"""What wen2023 leaves open: does 1-SAM's test error depend on initialization, sampling, ρ, width?

And does SGD with label noise, which section 2 of the paper names beside SAM, do the same?

    flattest run 'sensitivity/*' --full          27 settings, three seeds each
    flattest summary 'sensitivity/*' --full

The settings of Figures 1b (no bias), 4b (bias) and 6a (Sim-LN), 30 000 epochs, with one thing
changed at a time.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

import flattest as ft
from flattest.experiments.expectations import AnyExpectation
from flattest.experiments.training import Training
from flattest.papers.wen2023.experiments import BIAS, NO_BIAS, SIM_LN_SMALL, flattest, perfect, poor
from flattest.problem.models import shapes

replace = msgspec.structs.replace
QUICK_EPOCHS = 4_000
Change = Callable[[Training], Training]


def _initialized(task: Training, initialization: ft.Init) -> Training:
    return replace(task, model=replace(task.model, initialization=initialization))


def _first_layer_times(factor: float) -> Change:
    def change(task: Training) -> Training:
        first = [name for name in shapes(task.model, task.distribution.d) if name in ("W1", "b1")]
        return _initialized(task, ft.Init(scales=tuple((name, factor) for name in first)))

    return change


def _with_phase(**change) -> Change:
    return lambda task: replace(task, phases=tuple(replace(p, **change) for p in task.phases))


def _with_width(width: int) -> Change:
    return lambda task: replace(task, model=replace(task.model, width=width))


def _slower(change: Change) -> Change:
    """With η = 0.001 and more epochs: at η = 0.01 these diverge within an epoch.

    A step on one sample is stable only for η‖∇f‖² < 1. ‖∇f‖² is 89 at the printed setting with
    bias, but 176 at width 1000, 536 with He's weights and 761 with three times the first layer.
    """
    return lambda task: _with_phase(lr=0.001, epochs=100_000)(change(task))


def _cooled(task: Training) -> Training:
    """The second half of the epochs with a tenth of η."""
    (phase,) = task.phases
    assert isinstance(phase, ft.Phase)
    half = replace(phase, epochs=phase.length(task.n) // 2)
    return replace(task, phases=(half, replace(half, lr=phase.lr / 10)))


def _with_label_noise(task: Training) -> Training:
    """SGD with labels y ± 0.3 in the place of 1-SAM, at its η: it drifts more slowly."""
    (phase,) = task.phases
    assert isinstance(phase, ft.Phase)
    return replace(task, phases=(ft.label_noise_sgd(phase.lr, 0.3, epochs=100_000),))


CHANGES: dict[str, Change] = {
    "as-printed": lambda task: task,
    "first-layer-0.1": _first_layer_times(0.1),
    "first-layer-3": _slower(_first_layer_times(3.0)),
    "he": _slower(lambda task: _initialized(task, ft.Init(weights="he"))),
    "replacement": _with_phase(replacement=True),
    "rho-0.01": _with_phase(rho=0.01),
    "rho-0.1": _with_phase(rho=0.1),
    "width-100": _with_width(100),
    "width-200": _with_width(200),
    "width-1000": _slower(_with_width(1000)),
}
BIAS_CHANGES = CHANGES | {"label-noise": _with_label_noise}
# What a quick variant needs besides fewer epochs: wide networks drift too slowly for these.
QUICK_TOO = {"label-noise": _with_width(100)}
SIM_LN_CHANGES: dict[str, Change] = {
    "as-printed": lambda task: task,
    "cooled": _cooled,
    "first-layer-0.1": _first_layer_times(0.1),
    "rho-0.05": _with_phase(rho=0.05),
    "rho-0.3": _with_phase(rho=0.3),
    "width-100": _with_width(100),
}


class Found(NamedTuple):
    """What was found, and is now expected: in words, and as checks."""

    statement: str
    expectations: tuple[AnyExpectation, ...]


GENERALIZES = Found("1-SAM generalizes.", (perfect(0.05),))
NOISE_IS_FLATTEST = Found(
    "SGD with label noise reaches the least sharpness and generalizes.",
    (perfect(0.05), flattest(0.05)),
)
FAILS = Found("1-SAM does not generalize.", (poor(0.05),))
NEARLY = Found("1-SAM generalizes up to 10 %.", (perfect(0.1),))
SETTLES = Found(
    "1-SAM generalizes up to 10 %, and its sharpness settles at the least value.",
    (perfect(0.1), flattest(0.05)),
)


class Baseline(NamedTuple):
    """A figure's setting, what is changed in it, and what was found: mostly, and where else."""

    figure: str
    model: ft.MLP
    phase: ft.Phase
    changes: dict[str, Change]
    found: Found
    found_otherwise: dict[str, Found]


BASELINES = {
    "no-bias": Baseline(
        "Figure 1b, varied",
        NO_BIAS,
        ft.sam(0.01, 0.05, epochs=30_000),
        CHANGES,
        GENERALIZES,
        dict.fromkeys(("first-layer-3", "he", "rho-0.01", "width-1000"), FAILS),
    ),
    "bias": Baseline(
        "Figure 4b, varied",
        BIAS,
        ft.sam(0.01, 0.05, epochs=30_000),
        BIAS_CHANGES,
        FAILS,
        {"first-layer-0.1": GENERALIZES, "label-noise": NOISE_IS_FLATTEST},
    ),
    "sim-ln": Baseline(
        "Figure 6a, varied",
        SIM_LN_SMALL,
        ft.sam(0.1, 0.1, epochs=30_000),
        SIM_LN_CHANGES,
        NEARLY,
        {"cooled": SETTLES},
    ),
}


def _experiment(name: str, change: str) -> ft.Experiment:
    panel = BASELINES[name]
    printed = Training(distribution=ft.Xor(30), n=100, model=panel.model, phases=(panel.phase,))
    full = panel.changes[change](printed)
    quick = _with_phase(epochs=QUICK_EPOCHS)(replace(full, log=ft.Log(points=15)))
    quick = QUICK_TOO.get(change, lambda task: task)(quick)
    statement, expectations = panel.found_otherwise.get(change, panel.found)
    return ft.Experiment(
        name=f"sensitivity/{name}-{change}",
        figure=panel.figure,
        statement=statement,
        quick=ft.Variant(quick, 1, expectations),
        full=ft.Variant(full, 3, expectations),
    )


EXPERIMENTS = tuple(
    _experiment(name, change) for name, panel in BASELINES.items() for change in panel.changes
)
