"""Table 1 of wen2023: four architectures, two questions each.

    flattest table1           under three minutes on two cores
    flattest table1 --full    the paper's width and epochs

Expected: no bias ✓✓ (Scenario I), bias ✗✗ (II), Sim-BN ✗✓ (III), Sim-LN ✗✓ (III). The paper prints
✓✓ for Sim-BN, by Theorem 3.2, which fails as printed (`ft.sim_bn_spike`).
"""

from typing import Any

import msgspec

import flattest as ft
from flattest.experiments.experiment import VariantName
from flattest.experiments.training import Training
from flattest.lab.setup import experiments_of
from flattest.papers.wen2023 import experiments as wen2023


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """One architecture: what is asked, at two scales, the paper's answers, and those that are
    `expected` here, with the reason where they are `other` than the paper's."""

    title: str
    theorem: str
    quick: ft.Setup
    full: ft.Setup
    paper: tuple[bool, bool]
    other: tuple[bool, bool] | None = None
    reason: str = ""

    @property
    def expected(self) -> tuple[bool, bool]:
        return self.other or self.paper


def _phases(panel: str) -> tuple[ft.Phase | ft.Flow, ...]:
    """The phases of a figure's panel, at the paper's epochs."""
    tasks = {e.panel: e.full.task for e in wen2023.EXPERIMENTS}
    task = tasks[panel]
    assert isinstance(task, Training)
    return task.phases


# A search small enough for minutes; the statement challenged is for every width and d.
_NO_BIAS_CHALLENGE = ft.Challenge(
    distribution=ft.Xor(12), n=60, model=ft.MLP(60), wrong=60, steps=400
)
# The spike network exists under Condition 1, which needs n ≥ 116 at d = 30.
_SIM_BN_CHALLENGE = ft.Challenge(
    distribution=ft.CompleteXor(30), n=116, model=ft.MLP(100, bias=True, norm="sim_bn")
)
_QUICK_GD = (ft.gd(0.01, weight_decay=0.05, epochs=20_000),)


def _full(
    name: str, model: ft.MLP, algorithm: str, baseline: str | None = None, **more: Any
) -> ft.Setup:
    """A row at the paper's scale: `algorithm` and `baseline` are the panels that train it."""
    return ft.Setup(
        name=name,
        distribution=ft.Xor(30),
        n=100,
        model=model,
        algorithm=_phases(algorithm),
        baseline=() if baseline is None else _phases(baseline),
        **more,
    )


def _quick(full: ft.Setup, **changes: Any) -> ft.Setup:
    """The row within minutes: what of the paper's scale is changed."""
    return msgspec.structs.replace(full, log=wen2023.QUICK_LOG, **changes)


_NO_BIAS = _full(
    "no-bias", wen2023.NO_BIAS, "fig1b", "fig1a", challenge=_NO_BIAS_CHALLENGE, challenges=5
)
_BIAS = _full("bias", wen2023.BIAS, "fig4b", "fig4a")
_SIM_BN = _full(
    "sim-bn", wen2023.SIM_BN, "fig2a", challenge=_SIM_BN_CHALLENGE, seeds=2, challenges=5
)
_SIM_LN = _full("sim-ln", wen2023.SIM_LN, "fig6b")

_ALL = (
    Architecture(
        title="2-layer without bias",
        theorem="Theorem 3.1",
        paper=(True, True),
        full=_NO_BIAS,
        quick=_quick(
            _NO_BIAS,
            algorithm=(ft.sam(0.01, 0.05, epochs=5_000),),
            baseline=_QUICK_GD,
            challenges=2,
        ),
    ),
    Architecture(
        title="2-layer with bias",
        theorem="Theorem 4.1",
        paper=(False, False),
        full=_BIAS,
        quick=_quick(_BIAS, algorithm=(ft.sam(0.01, 0.05, epochs=20_000),), baseline=_QUICK_GD),
    ),
    Architecture(
        title="2-layer with simplified BatchNorm",
        theorem="Theorem 3.2",
        paper=(True, True),
        other=(False, True),
        reason="Theorem 3.2 fails as printed: its proof takes f for continuous where the statistic "
        "of a neuron tends to 0. A spike network is as flat as one likes and wrong off the "
        "training set.",
        full=_SIM_BN,
        quick=_quick(
            _SIM_BN,
            model=msgspec.structs.replace(wen2023.SIM_BN, width=100),
            algorithm=(ft.sam(0.005, 0.1, epochs=2_000),),
            seeds=5,
            challenges=2,
        ),
    ),
    Architecture(
        title="2-layer with simplified LayerNorm",
        theorem="Theorem 5.1",
        paper=(False, True),
        full=_SIM_LN,
        quick=_quick(_SIM_LN),
    ),
)


ARCHITECTURES = {each.full.name: each for each in _ALL}


def answered(row: Architecture, variant: VariantName, store: Any) -> Any:
    """The row's answer, with what is committed on the flow of the sharpness and on proofs."""
    # Where specs are listed nothing is judged, and these are slow to import.
    from flattest.lab.scenario import answer
    from flattest.studies.table1.flow import flow_generalizes
    from flattest.studies.table1.proof import with_proof

    setup = getattr(row, variant)
    flow = flow_generalizes(row.full.name, setup.generalizes)
    found = answer(setup, roles(row), variant, store)
    proof = with_proof(row.full.name, found.flattest_generalize)
    return msgspec.structs.replace(found, flow_generalizes=flow, flattest_generalize=proof)


def roles(asked: Architecture) -> dict[str, ft.Experiment]:
    """The experiments behind a row of the table, by role."""
    flattest, algorithm = asked.expected
    expected = {"challenge": flattest, "algorithm": algorithm, "baseline": True}
    return experiments_of(asked.quick, asked.full, "table1", expected)


EXPERIMENTS = tuple(e for each in ARCHITECTURES.values() for e in roles(each).values())
