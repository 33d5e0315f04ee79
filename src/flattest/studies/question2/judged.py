"""The intervention on the judge's examples: 1-SAM as it is, and with its pattern kept.

The setups are those that `flattest judge` is shown with (`flattest example`, examples/own_lab.py,
examples/table1_lab.py) and that train a network of kinks by 1-SAM, at the size and for the epochs
that they have there. A test holds them to the files.
"""

import msgspec

import flattest as ft
from flattest.experiments.expectations import AnyExpectation
from flattest.papers.wen2023.experiments import QUICK_LOG, perfect, poor
from flattest.studies.table1.experiments import ARCHITECTURES

replace = msgspec.structs.replace

LEAKY = ft.Setup(
    name="leaky-bias",
    distribution=ft.Xor(20),
    n=60,
    model=ft.MLP(200, bias=True, activation="leaky_relu:0.1"),
    algorithm=(ft.sam(0.02, 0.1, epochs=5_000),),
)
D50 = ft.Setup(
    name="d50",
    distribution=ft.Xor(50),
    n=150,
    model=ft.MLP(150, bias=True),
    algorithm=(ft.sam(0.01, 0.1, epochs=5_000),),
)
PARITY = ft.Setup(
    name="three-parity",
    distribution=ft.Parity(8),
    n=100,
    model=ft.MLP(100, bias=True),
    algorithm=(ft.sam(0.01, 0.1, epochs=3_000),),
)
TABLE1 = {name: row.quick for name, row in ARCHITECTURES.items()}

# Of each setup: whether 1-SAM as it is was expected to generalize. With its pattern kept all were.
SETUPS = {
    "leaky": (LEAKY, False),
    "d50": (D50, False),
    "parity": (PARITY, True),
    "no-bias": (TABLE1["no-bias"], True),
    "bias": (TABLE1["bias"], False),
    "sim-bn": (TABLE1["sim-bn"], True),
    "sim-ln": (TABLE1["sim-ln"], True),
}
KNOWN = "The judge had answered for the setups as they are, before; none was tried with its pattern"


def _judged(name: str, setup: ft.Setup, kept: bool, generalizes: bool) -> ft.Experiment:
    phases = tuple(
        replace(phase, pattern="kept" if kept else "free")
        for phase in setup.algorithm
        if isinstance(phase, ft.Phase)
    )
    task = setup.training(phases)
    expected: AnyExpectation = (perfect if generalizes else poor)(setup.generalizes)
    way = "1-SAM with its pattern kept" if kept else "1-SAM as it is"
    verb = "generalizes" if generalizes else "does not generalize"
    short = tuple(replace(phase, epochs=100) for phase in phases)
    return ft.Experiment(
        name=f"question2/judged-{name}-{'sam-kept' if kept else 'sam'}",
        figure="Not in the paper",
        statement=f"On the judge's example {setup.name}, {way} {verb}.",
        quick=ft.Variant(replace(task, phases=short, log=QUICK_LOG), 1, ()),
        full=ft.Variant(task, 5, (expected,)),
        notes=f"{KNOWN} kept.",
    )


EXPERIMENTS = tuple(
    experiment
    for name, (setup, generalizes) in SETUPS.items()
    for experiment in (
        _judged(name, setup, kept=False, generalizes=generalizes),
        _judged(name, setup, kept=True, generalizes=True),
    )
)
