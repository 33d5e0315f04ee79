"""The two engines take the same steps, in float64 to 1e-10 over hundreds of them."""

from itertools import product

import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.training import fused, loop
from flattest.training.state import Problem, State

pytestmark = pytest.mark.rounding

N, D, STEPS = 12, 4, 240

MODELS = {
    "no bias": ft.MLP(width=10),
    "bias": ft.MLP(width=10, bias=True),
    "output bias": ft.MLP(width=10, bias=True, output_bias=True),
    "leaky": ft.MLP(width=10, bias=True, activation="leaky_relu:0.2"),
    "linear": ft.MLP(width=10, activation="linear", output_bias=True),
    "softplus": ft.MLP(width=10, bias=True, activation="softplus"),
    "quadratic": ft.MLP(width=10, bias=True, activation="quadratic"),
    "relu^3": ft.MLP(width=10, activation="relu^3"),
    "sim_ln": ft.MLP(width=10, bias=True, norm="sim_ln"),
    "sim_bn tanh": ft.MLP(width=10, bias=True, norm="sim_bn", activation="tanh"),
    "three layers silu": ft.MLP(width=10, depth=3, activation="silu"),
    "gelu": ft.MLP(width=10, bias=True, activation="gelu"),
    "sim_ln softplus": ft.MLP(width=10, norm="sim_ln", activation="softplus"),
    "sim_bn": ft.MLP(width=10, bias=True, norm="sim_bn"),
    "sim_bn quadratic": ft.MLP(width=10, norm="sim_bn", activation="quadratic"),
    "three layers": ft.MLP(width=10, depth=3, bias=True),
    "three layers softplus": ft.MLP(width=10, depth=3, activation="softplus", output_bias=True),
}
LOSSES = (ft.MSE(), ft.Logistic(), ft.HalfMSE(), ft.Logistic(smoothing=0.1))


# Rules that exclude one another apart, the others together: compiling is what costs time.
RULES = (
    ft.sam(0.01, 0.05, epochs=1000, label_noise=0.2, replacement=True, weight_decay=0.05),
    ft.sam(0.01, 0.1, batch=5, micro_batch=2, epochs=1000, project=1.2, warmup=100),
    ft.sam(
        *(0.01, 0.05, None),
        ascent="unnormalized",
        epochs=1000,
        step_change=ft.StepChange(0.9, 0.5),
        stop_loss=1e-9,
    ),
    ft.sgd(0.01, batch=5, epochs=1000, weight_decay=0.05),
)
FAMILIES = ("bias", "sim_ln", "sim_bn", "three layers")
# Radii at which a third of a batch's neurons would cross a kink.
KEPT = (
    ft.sam(0.01, 0.5, epochs=1000, pattern="kept"),
    ft.sam(0.01, 0.5, batch=5, micro_batch=2, epochs=1000, pattern="kept"),
    ft.sam(0.01, 0.5, batch=None, micro_batch=1, epochs=1000, pattern="kept"),
)
PIECEWISE_LINEAR = (*FAMILIES, "no bias", "output bias", "leaky")


def cases():
    """1-SAM for every network with the losses in turn; every rule for every family of kernels."""
    for i, name in enumerate(MODELS):
        yield name, LOSSES[i % len(LOSSES)], ft.sam(0.01, 0.05, epochs=1000)
    for name, (i, rule) in product(FAMILIES, enumerate(RULES)):
        yield name, LOSSES[0] if rule.label_noise else LOSSES[i], rule
    for name, rule in product(PIECEWISE_LINEAR, KEPT):
        yield name, LOSSES[0], rule


def describe(case):
    name, cost, phase = case
    rho = f"rho {phase.rho} {phase.ascent}" if phase.rho else "sgd"
    kept = ", pattern kept" if phase.pattern == "kept" else ""
    return f"{name}, {cost.name}, batch {phase.batch}, {rho}{kept}"


def trail(engine, problem, phase, state, epochs):
    """The parameters after every few epochs."""
    out = []
    for _ in range(6):
        state = engine.advance(problem, phase, state, epochs)
        out.append(state)
    return out


CASES = [case for case in cases() if fused.supports(MODELS[case[0]], case[1], case[2]) is None]


# One in three here; `make test-more` takes them all, with JAX's optimizer on.
@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=[pytest.mark.slow] if i % 3 else []) for i, c in enumerate(CASES)],
    ids=map(describe, CASES),
)
def test_the_engines_agree_to_1e_10_over_hundreds_of_steps(case):
    name, cost, phase = case
    model, data = MODELS[name], ft.xor(N, D, seed=3)
    problem, start = Problem(model, data, cost, seed=5), State(model.init(D, seed=1))
    epochs = STEPS // 6 // phase.steps_per_epoch(N)
    pairs = zip(
        trail(loop, problem, phase, start, epochs),
        trail(fused, problem, phase, start, epochs),
        strict=True,
    )
    for slow, fast in pairs:
        assert (slow.epoch, slow.step, slow.changed, slow.halt) == (
            fast.epoch,
            fast.step,
            fast.changed,
            fast.halt,
        )
        scale = max(np.abs(value).max() for value in slow.params.values())
        for key, value in slow.params.items():
            assert np.abs(fast.params[key] - value).max() <= 1e-10 * scale


def test_every_case_is_one_the_fused_engine_covers():
    for family in FAMILIES:
        mine = [phase for name, _, phase in CASES if name == family]
        assert {phase.batch for phase in mine} == {1, 5, None}
        assert set(mine) > {*RULES, *KEPT}
    assert {name for name, _, _ in CASES} == set(MODELS)
    assert {cost for _, cost, _ in CASES} == set(LOSSES)


@pytest.mark.parametrize("name", ["bias", "sim_bn"])
def test_a_kept_pattern_is_told_from_a_free_one(name):
    problem = Problem(MODELS[name], ft.xor(N, D, seed=3), ft.MSE(), seed=5)
    start, (phase, *_) = State(MODELS[name].init(D, seed=1)), KEPT
    free = msgspec.structs.replace(phase, pattern="free")
    kept, crossing = (fused.advance(problem, p, start, 20).params["W1"] for p in (phase, free))
    assert np.abs(kept - crossing).max() > 0.01


def test_a_step_of_another_size_is_told_apart():
    problem = Problem(MODELS["bias"], ft.xor(N, D, seed=3), ft.MSE(), seed=5)
    start = State(MODELS["bias"].init(D, seed=1))
    slow = loop.advance(problem, ft.sam(0.01, 0.05, epochs=20), start, 20)
    fast = fused.advance(problem, ft.sam(0.01, 0.05 * (1 + 1e-7), epochs=20), start, 20)
    assert np.abs(slow.params["W1"] - fast.params["W1"]).max() > 1e-10
