"""The driver: what a run logs, how it ends, and what it refuses."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import flattest as ft
from flattest.errors import FlattestError
from flattest.training.algorithms import Phase
from flattest.training.log import MEASURES, Log, log_spaced
from flattest.training.metrics import METRICS, Metrics, stagnated_at
from flattest.training.train import train
from support.reference import dense_gradient, dense_hessian

pytestmark = pytest.mark.rounding

NET = ft.MLP(width=12, bias=True)
DATA = ft.xor(n=12, d=5, seed=1)
EVERY_EPOCH = Log(epochs=tuple(range(60)), measures=())


def test_a_run_logs_every_metric_in_float64():
    run = train(NET, DATA, ft.sam(0.05, 0.1, epochs=40), seed=3, log=Log(epochs=(0, 5, 40)))
    s, params = run.series, {k: np.asarray(v, np.float64) for k, v in run.params.items()}
    assert (run.status, run.backend, run.reason, run.step) == ("finished", "fused", "", 480)
    assert s["epoch"].tolist() == [0, 5, 40]
    assert s["step"].tolist() == [0, 60, 480]
    assert all(column.dtype == np.float64 and column.shape == (3,) for column in s.values())
    assert run.params["W1"].dtype == np.float32
    f = np.maximum(DATA.x @ params["W1"].T + params["b1"], 0) @ params["W2"]
    assert s["train_loss"][-1] == pytest.approx(np.mean((f - DATA.y) ** 2), rel=1e-12)
    assert s["train_error"][-1] == np.mean(f * DATA.y <= 0)
    assert s["sharpness"][-1] == pytest.approx(
        np.trace(dense_hessian(NET, params, DATA)), rel=1e-10
    )
    gradient = dense_gradient(NET, params, DATA)
    assert s["gradient_norm"][-1] == pytest.approx(np.linalg.norm(gradient), rel=1e-10)
    assert s["bound"] == pytest.approx(4 * np.sqrt(6), rel=1e-12)
    assert s["gap"] == pytest.approx(s["sharpness"] / s["bound"] - 1, rel=1e-12)
    assert s["norm_b1"][-1] == pytest.approx(np.linalg.norm(params["b1"]), rel=1e-12)
    total = sum(s[f"norm_{name}"] ** 2 for name in params) ** 0.5
    assert s["norm"] == pytest.approx(total, rel=1e-12)
    on = (DATA.x @ params["W1"].T + params["b1"] > 0).any(axis=0)
    assert s["active_neurons"][-1] == on.sum()


def test_the_test_error_is_that_of_the_whole_support_where_it_is_small():
    run = train(NET, DATA, ft.sgd(0.05, epochs=3), log=Log(epochs=()))
    x = DATA.distribution.population().x
    assert len(x) == 32
    f = ft.predict(NET, run.params, x, DATA.x)
    assert run.series["test_error"][-1] == np.mean(f * x[:, 0] * x[:, 1] <= 0)
    assert run.series["test_loss"][-1] == pytest.approx(np.mean((f - x[:, 0] * x[:, 1]) ** 2))


def test_data_without_a_distribution_have_no_test_error():
    run = train(NET, ft.Dataset(DATA.x, DATA.y), ft.sgd(0.05, epochs=2))
    assert np.isnan(run.series["test_error"]).all()
    assert np.isnan(run.series["test_loss"]).all()


def test_a_loss_without_a_minimizer_has_no_bound_and_labels_of_0_an_absolute_gap():
    plain = train(NET, DATA, ft.sgd(0.05, epochs=2), loss=ft.Logistic(smoothing=0.0))
    assert np.isfinite(plain.series["sharpness"]).all()
    assert np.isnan(plain.series["bound"]).all()
    zero = train(NET, ft.Dataset(DATA.x, 0 * DATA.y), ft.sgd(0.05, epochs=2))
    assert (zero.series["bound"] == 0).all()
    assert (zero.series["gap"] == zero.series["sharpness"]).all()


def test_points_are_log_spaced_from_the_start_of_every_phase():
    phases = [ft.sgd(0.01, epochs=100), ft.sgd(0.01, epochs=10)]
    epochs = train(NET, DATA, phases, log=Log(points=10, measures=())).series["epoch"]
    spaced = [*log_spaced(100, 5), *(100 + e for e in log_spaced(10, 5))]
    assert epochs.tolist() == [0, *spaced]
    ratios = np.diff(np.log(log_spaced(10**6, 25)[10:]))
    assert ratios == pytest.approx(ratios[0], rel=1e-2)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**40), st.sets(st.integers(0, 60), max_size=9), st.integers(1, 60))
def test_any_log_gives_the_same_bits_in_the_fused_engine(seed, epochs, length):
    phases = [
        ft.sam(0.05, 0.1, epochs=length, label_noise=0.1),
        ft.sgd(0.02, epochs=60 - length + 1),
    ]

    def run(log):
        return train(NET, DATA, phases, seed=seed, log=log)

    plain = run(Log(epochs=(), measures=()))
    cut = run(Log(epochs=tuple(epochs), measures=()))
    assert set(cut.series["epoch"]) == {0, length, 61} | epochs
    assert all((plain.params[name] == cut.params[name]).all() for name in plain.params)


@pytest.mark.slow
def test_what_is_logged_changes_no_bit_in_the_jax_engine():
    phases = [ft.sam(0.05, 0.1, epochs=30, warmup=70), ft.sgd(0.02, epochs=20)]

    def params(log):
        return train(NET, DATA, phases, seed=2, backend="jax", log=log).params

    sparse, dense = params(Log(epochs=())), params(EVERY_EPOCH)
    assert all((sparse[name] == dense[name]).all() for name in sparse)


@pytest.mark.parametrize("backend", ["jax", "fused"])
def test_a_loss_reached_ends_its_phase_and_the_next_begins(backend):
    phases = [ft.sgd(0.05, epochs=500, stop_loss=0.2), ft.sgd(0.01, epochs=7)]
    run = train(NET, DATA, phases, seed=0, backend=backend, dtype="float64")
    first = run.series["epoch"][run.series["phase"] == 0]
    assert first[-1] < 500
    assert run.epoch == first[-1] + 7
    loss = run.series["train_loss"][run.series["epoch"] == first[-1]]
    assert loss <= 0.2


@pytest.mark.parametrize("backend", ["jax", "fused"])
def test_the_step_grows_once_the_loss_is_small(backend):
    change = ft.StepChange(below=0.5, factor=2.0)
    phase = ft.sgd(0.02, epochs=60, step_change=change)
    run = train(NET, DATA, phase, seed=0, backend=backend, dtype="float64", log=EVERY_EPOCH)
    crossing = int(np.argmax(run.series["train_loss"] < 0.5))
    assert 0 < crossing < 59
    phases = [ft.sgd(0.02, epochs=crossing), ft.sgd(0.04, epochs=60 - crossing)]
    by_hand = train(NET, DATA, phases, seed=0, backend=backend, dtype="float64")
    assert all((run.params[name] == by_hand.params[name]).all() for name in run.params)


@pytest.mark.parametrize("backend", ["jax", "fused"])
def test_divergence_is_a_result_with_its_step(backend):
    phases = [ft.sgd(0.01, batch=None, epochs=7), ft.sgd(0.25, epochs=100)]
    run = train(NET, DATA, phases, backend=backend)
    assert run.status == "diverged"
    assert str(run.step) in run.sentence
    whole = 7 + 12 * (run.epoch - 7)
    assert run.series["step"][-1] == whole > 7
    assert whole <= run.step <= whole + 12
    assert all(np.isfinite(value).all() for value in run.params.values())
    assert run.series["epoch"][-1] == run.epoch
    assert np.isfinite(run.series["train_loss"]).all()


def test_both_engines_diverge_in_the_same_epoch():
    # The step may differ: ReLU hides a NaN from the output in one engine and not in the other.
    runs = [
        train(NET, DATA, ft.sgd(0.6, epochs=100), backend=backend, dtype="float64")
        for backend in ("jax", "fused")
    ]
    assert {run.status for run in runs} == {"diverged"}
    assert runs[0].epoch == runs[1].epoch


def test_a_network_of_dead_neurons_has_stagnated_from_the_start():
    params = NET.init(5, seed=0) | {"b1": np.full(12, -100.0)}
    run = train(NET, DATA, ft.sam(0.05, 0.1, epochs=100), params=params)
    assert (run.status, run.step) == ("stagnated", 0)
    assert run.series["active_neurons"].tolist() == [0] * len(run.series["epoch"])


@pytest.mark.slow
def test_sim_bn_that_collapses_to_its_saddle_at_0_has_stagnated():
    # wen2023's Sim-BN from a small γ: SAM's ρ holds it at γ = W2 = 0, where it cannot learn.
    small = ft.MLP(width=20, bias=True, norm="sim_bn", initialization=ft.Init(gamma=0.01))
    run = train(small, DATA, ft.sam(0.02, 0.5, epochs=1000), log=Log(points=20))
    assert run.status == "stagnated"
    assert f"since step {run.step}" in run.sentence
    assert run.series["norm_gamma"][-1] < 0.1
    healthy = ft.MLP(width=20, bias=True, norm="sim_bn")
    assert train(healthy, DATA, ft.sam(0.005, 0.1, epochs=1000)).status == "finished"


def series_of(loss, gradient=1.0):
    loss = np.asarray(loss, float)
    epoch = np.linspace(0, 10_000, len(loss))
    ones = np.ones(len(loss))
    return {
        "epoch": epoch,
        "step": epoch * 12,
        "train_loss": loss,
        "norm": ones,
        "gradient_norm": ones * gradient,
    }


@pytest.mark.parametrize(
    ("loss", "gradient", "decay", "step"),
    [
        ([1, 0.5, 0.1, 1e-6, 1e-6, 1e-6], 0, False, None),
        ([1, 0.5, 0.2, 0.2, 0.2, 0.2], 1, False, 48_000),
        ([1, 0.5, 0.2, 0.2, 0.2, 0.2], 1, True, None),
        ([1, 0.5, 0.2, 0.21, 0.19, 0.2], 1, False, None),
        ([1, 0.5, 0.2, 0.21, 0.19, 0.2], 1e-9, True, 0),
        ([1, 1.2, 0.5, 0.9, 1.01, 0.99], 1, False, None),
        ([1, 0.9, 1.1, 1.0, 0.995, 1.03], 1, False, 48_000),
    ],
    ids=[
        "at the minimum",
        "standing still",
        "the minimum with weight decay",
        "still moving",
        "a critical point",
        "collapsed only of late",
        "collapsed",
    ],
)
def test_stagnation_is_being_stuck_above_the_minimum(loss, gradient, decay, step):
    data = ft.Dataset(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]))
    metrics = Metrics(NET, data, ft.MSE(), None)
    assert (metrics.constant_loss, metrics.least_loss) == (1.0, 0.0)
    assert stagnated_at(series_of(loss, gradient), metrics, decay) == step


def test_auto_says_why_it_did_not_take_the_fused_engine():
    model = ft.FunctionModel(
        lambda p, x: jnp.tanh(x @ p["A"]) @ p["c"],
        lambda d, seed: {"A": np.full((d, 2), 0.1), "c": np.array([0.5, -0.2])},
    )
    run = train(model, DATA, ft.sgd(0.01, epochs=2))
    assert run.backend == "jax"
    assert "MLP" in run.reason
    assert np.isnan(run.series["active_neurons"]).all()
    assert run.series["sharpness"][-1] == pytest.approx(
        np.trace(dense_hessian(model, run.params, DATA)), rel=1e-6
    )
    with pytest.raises(ft.FlattestError, match="backend='auto'"):
        train(model, DATA, ft.sgd(0.01, epochs=2), backend="fused")


def test_progress_is_reported_up_to_the_end():
    seen = []
    run = train(NET, DATA, ft.sgd(0.01, epochs=5), progress=seen.append)
    assert seen[-1].fraction == 1.0
    assert (seen[-1].epoch, seen[-1].step) == (5, 60)
    assert all((seen[-1].series[name] == run.series[name]).all() for name in run.series)


def test_progress_may_be_reported_at_every_epoch():
    seen = []
    phases = [ft.sgd(0.01, epochs=3), ft.sgd(0.01, epochs=2)]
    train(NET, DATA, phases, progress=seen.append, progress_seconds=0.0)
    assert [p.epoch for p in seen] == [1, 2, 3, 4, 5, 5]
    assert [p.fraction for p in seen] == [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]


def test_every_name_of_a_measure_has_its_function():
    assert set(METRICS) == set(MEASURES)


WRONG_SHAPE = {"W1": np.ones((12, 4)), "b1": np.ones(12), "W2": np.ones(12)}
NOT_FINITE = {"W1": np.full((12, 5), np.nan), "b1": np.ones(12), "W2": np.ones(12)}
TABLE = ft.FunctionModel(lambda p, x: x @ p["A"], lambda d, seed: {"A": np.ones((d, 2))})
WIDE = ft.FunctionModel(lambda p, x: x @ p["A"], lambda d, seed: {"A": np.ones(d + 1)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "mlp"}, "A model has init and apply"),
        ({"data": DATA.x}, r"not as a ndarray: flattest.Dataset\(x, y\)"),
        ({"phases": []}, "at least one phase"),
        ({"phases": ["sgd"]}, "made by gd, sgd, sam or flow"),
        ({"phases": [ft.sgd(0.1, batch=13, epochs=1)]}, "larger than the 12 training points"),
        ({"params": WRONG_SHAPE}, r"W1 must have shape \(12, 5\)"),
        ({"params": NOT_FINITE}, "W1 has entries that are not finite"),
        ({"seed": -1}, "seed must be a non-negative integer"),
        ({"seed": 0.5}, "seed must be a non-negative integer"),
        ({"dtype": "float16"}, "valid are: float32, float64"),
        ({"backend": "cuda"}, "valid are: auto, fused, jax"),
        ({"loss": "hinge"}, "valid are: cross_entropy, half_mse, logistic, mse"),
        ({"data": ft.ball(n=12, d=5), "loss": "logistic"}, "takes labels"),
        (
            {"phases": [ft.label_noise_sgd(0.1, 0.2, epochs=1)], "loss": "logistic"},
            "squared losses and one output only",
        ),
        ({"model": TABLE}, "one output per point"),
        ({"model": WIDE}, "cannot be applied to 5 inputs"),
        (
            {
                "model": ft.FunctionModel(
                    lambda p, x: x @ p["A"], lambda d, seed: {"A": np.ones(d)}
                ),
                "phases": [ft.sgd(0.1, epochs=1, project=1.0)],
            },
            "first layer named W1",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(changes, message):
    arguments = {"model": NET, "data": DATA, "phases": [ft.sgd(0.1, epochs=1)], **changes}
    with pytest.raises(ft.FlattestError, match=message):
        train(**arguments)


def test_a_setting_that_the_kernels_do_not_know_is_left_to_the_jax_engine():
    class Grown(Phase, frozen=True, kw_only=True, tag="phase"):
        adaptive: bool = False

    at_rest, adaptive = (Grown(lr=0.01, epochs=2, adaptive=flag) for flag in (False, True))
    assert train(NET, DATA, at_rest).backend == "fused"
    run = train(NET, DATA, adaptive)
    assert run.backend == "jax"
    assert "setting 'adaptive'" in run.reason


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ft.Log(points=None), "A log's points must be a positive integer, not None"),
        (lambda: ft.Log(snapshots="x"), "A log's snapshots must be an integer ≥ 0"),
        (lambda: ft.Log(measures=1.5), "A log's measures are a tuple, not 1.5"),
        (lambda: ft.Log(measures=(np.zeros(2),)), "Unknown measure"),
        (lambda: ft.Log(epochs=np.zeros(2)), "A log's epochs are a tuple"),
        (lambda: wrongly(log=3), "A log is made by flattest.Log, not 3"),
        (lambda: wrongly(test_size="x"), "test_size must be a positive integer, not 'x'"),
        (lambda: wrongly(phases=1.5), "A phase is made by gd, sgd, sam or flow; 1.5 is not one"),
    ],
)
def test_arguments_of_a_wrong_kind_are_refused_in_one_sentence(call, sentence):
    with pytest.raises(FlattestError, match=re.escape(sentence)):
        call()


def wrongly(phases=None, **settings):
    phases = ft.sgd(0.1, epochs=1) if phases is None else phases
    ft.train(ft.MLP(3), ft.xor(8, 4, 0), phases, **settings)


@pytest.mark.parametrize("name", ["progress_seconds", "checkpoint_seconds"])
@pytest.mark.parametrize("value", [None, "x", -1.0, float("nan"), [1.0]])
def test_times_that_are_not_numbers_are_refused(name, value):
    with pytest.raises(FlattestError, match=f"{name} must be a number ≥ 0"):
        train(ft.MLP(4), ft.xor(n=6, d=3, seed=0), ft.gd(0.01, epochs=1), **{name: value})
