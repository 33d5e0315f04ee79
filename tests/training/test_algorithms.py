"""Phases: what they refuse, and that the engine's step is the documented formula."""

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flattest.errors import FlattestError
from flattest.problem.data import Dataset
from flattest.problem.distributions import ball, xor
from flattest.problem.losses import Logistic, loss
from flattest.problem.models import MLP, FunctionModel
from flattest.training import loop
from flattest.training.algorithms import Phase, StepChange, gd, label_noise_sgd, sam, sgd
from flattest.training.order import label_noise_signs, sample_order
from flattest.training.state import Problem, State
from flattest.training.train import train

pytestmark = pytest.mark.rounding


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.0}, "learning rate lr must be a finite number > 0"),
        ({"lr": -1.0}, "learning rate lr must be a finite number > 0"),
        ({"lr": float("nan")}, "learning rate lr must be a finite number > 0"),
        ({"lr": "fast"}, "learning rate lr must be a finite number > 0"),
        ({"rho": -0.1}, "SAM radius rho must be a finite number ≥ 0"),
        ({"weight_decay": -0.1}, "weight decay must be a finite number ≥ 0"),
        ({"label_noise": float("inf")}, "label noise must be a finite number ≥ 0"),
        ({"epochs": 0}, "epochs must be a positive integer"),
        ({"epochs": None}, "by epochs or by steps"),
        ({"epochs": 5, "steps": 5}, "by epochs or by steps"),
        ({"batch": 0}, "batch must be a positive integer"),
        ({"batch": 2.5}, "batch must be a positive integer"),
        ({"warmup": -3}, "warmup must be an integer ≥ 0"),
        ({"ascent": "sideways"}, "valid are: adaptive, normalized, unnormalized"),
        ({"project": 0.0}, "projection's radius must be a finite number > 0"),
        ({"stop_loss": -1.0}, "loss to stop at must be a finite number ≥ 0"),
        ({"batch": None, "replacement": True}, "needs a batch size"),
        ({"micro_batch": 2, "batch": 4}, "set rho > 0"),
        ({"pattern": "kept"}, "no perturbed pass to keep the pattern in; set rho > 0"),
        ({"pattern": "lost", "rho": 0.1}, "valid are: free, kept"),
        ({"micro_batch": 8, "batch": 4, "rho": 0.1}, "larger than the batch"),
    ],
)
def test_a_phase_that_makes_no_sense_is_refused_in_one_sentence(changes, message):
    with pytest.raises(FlattestError, match=message):
        Phase(**{"lr": 0.1, "epochs": 1, **changes})


def test_numpys_integers_are_taken_for_pythons():
    counts = {"epochs": 3, "batch": 4, "micro_batch": 2, "warmup": 5}
    by_numpy = {name: np.int64(count) for name, count in counts.items()}
    phase = sam(0.1, 0.2, **by_numpy)
    assert msgspec.json.encode(phase) == msgspec.json.encode(sam(0.1, 0.2, **counts))
    assert sgd(0.1, steps=np.int64(3)) == sgd(0.1, steps=3)


def test_a_step_change_needs_positive_numbers():
    with pytest.raises(FlattestError, match="threshold"):
        StepChange(below=0.0, factor=3)
    with pytest.raises(FlattestError, match="factor"):
        StepChange(below=0.1, factor=-1)


def test_batches_larger_than_the_data_and_broken_epochs_are_refused():
    with pytest.raises(FlattestError, match="batch of 11 is larger than the 10 training points"):
        sgd(0.1, batch=11, epochs=1).check(10)
    with pytest.raises(FlattestError, match="micro-batch of 11 is larger than the 10"):
        sam(0.1, 0.1, batch=None, micro_batch=11, epochs=1).check(10)
    with pytest.raises(FlattestError, match="7 steps are not a whole number of epochs of 4 steps"):
        sgd(0.1, batch=3, steps=7).check(10)
    assert sgd(0.1, batch=3, steps=8).length(10) == 2


def test_phases_survive_json():
    phase = sam(0.01, 0.05, epochs=7, step_change=StepChange(0.1, 3.0), project=10.0)
    assert msgspec.json.decode(msgspec.json.encode(phase), type=Phase) == phase


def slow_training(gradient, data, phase, params, seed, epochs):
    """The formula of `algorithms`, one step at a time; `gradient(θ, points, labels)` is ∇L_B."""
    t = 0
    for epoch in range(epochs):
        order = np.arange(data.n)
        if phase.batch is not None:
            order = sample_order(seed, epoch, 1, data.n, phase.replacement)[0]
        labels = data.y[order] + phase.label_noise * label_noise_signs(seed, epoch, 1, data.n)[0]
        size = phase.batch or data.n
        for start in range(0, data.n, size):
            batch = order[start : start + size], labels[start : start + size]
            g = ascended_gradient(gradient, phase, params, *batch)
            lr = phase.lr * min(1, (t + 1) / max(1, phase.warmup))
            params = {k: v - lr * (g[k] + phase.weight_decay * v) for k, v in params.items()}
            if phase.project is not None:
                first = {name: params[name] for name in ("W1", "b1")}
                params |= {k: v * min(1, phase.project / norm(first)) for k, v in first.items()}
            t += 1
    return params


def ascended_gradient(gradient, phase, params, points, y):
    """Σ_j (|B_j|/|B|) ∇L_{B_j}(θ + ε_j)."""
    m, total = phase.micro_batch or len(points), dict.fromkeys(params, 0.0)
    for k in range(0, len(points), m):
        part = points[k : k + m], y[k : k + m]
        g = gradient(params, *part)
        climb = phase.rho / norm(g) if phase.ascent == "normalized" and norm(g) > 0 else phase.rho
        above = {name: v + climb * g[name] for name, v in params.items()}
        g = gradient(above, *part, params) if phase.pattern == "kept" else gradient(above, *part)
        total = {name: v + len(part[0]) / len(points) * g[name] for name, v in total.items()}
    return total


def norm(arrays):
    return np.sqrt(sum(np.sum(np.square(value)) for value in arrays.values()))


def gradient_by_hand(data):
    """∇L_B of the squared error of a two-layer ReLU network with bias, by the chain rule, the
    neurons being on where they are on under the parameters `at`."""

    def gradient(params, points, y, at=None):
        x = data.x[points]
        on = x @ (at or params)["W1"].T + (at or params)["b1"] > 0
        r = (x @ params["W1"].T + params["b1"]) * on
        slope = 2 * (r @ params["W2"] - y) / len(y)
        back = slope[:, None] * params["W2"] * on
        return {"W1": back.T @ x, "b1": back.sum(axis=0), "W2": slope @ r}

    return gradient


def gradient_by_autodiff(model, cost, data):
    def batch_loss(params, x, y):
        return jnp.mean(cost.value(model.apply(params, x, data.x), y))

    gradient = jax.jit(jax.grad(batch_loss))
    return lambda params, points, y: gradient(params, data.x[points], y)


NET = MLP(width=7, bias=True)
PHASES = {
    "gd": gd(0.05, epochs=4, weight_decay=0.1),
    "sgd": sgd(0.05, batch=4, epochs=3, warmup=9),
    "sgd, i.i.d. draws": sgd(0.05, batch=4, epochs=3, replacement=True),
    "label noise": label_noise_sgd(0.05, 0.3, epochs=2),
    "label noise, full batch": label_noise_sgd(0.05, 0.3, batch=None, epochs=2),
    "1-sam": sam(0.05, 0.2, epochs=2),
    "sam with decay": sam(0.05, 0.2, batch=3, epochs=2, weight_decay=0.1),
    "unnormalized sam": sam(0.05, 0.2, batch=None, epochs=3, ascent="unnormalized"),
    "m-sam": sam(0.05, 0.2, batch=4, micro_batch=3, epochs=3),
    "m-sam, full batch": sam(0.05, 0.2, batch=None, micro_batch=4, epochs=3),
    "projected": sam(0.05, 0.2, batch=5, epochs=2, project=1.0),
    "1-sam, pattern kept": sam(0.05, 0.5, epochs=2, pattern="kept"),
    "m-sam, pattern kept": sam(0.05, 0.5, batch=4, micro_batch=3, epochs=2, pattern="kept"),
}


def engine_training(model, data, cost, phase, params, seed, epochs):
    return loop.advance(Problem(model, data, cost, seed), phase, State(params), epochs)


@pytest.mark.parametrize("name", PHASES)
def test_the_engine_takes_the_documented_step(name):
    phase, data = PHASES[name], ball(n=10, d=3, seed=1)
    run = phase, NET.init(3, seed=2), 5, phase.length(10)
    state = engine_training(NET, data, loss("mse"), *run)
    expected = slow_training(gradient_by_hand(data), data, *run)
    assert state.step == phase.length(10) * phase.steps_per_epoch(10)
    for key, value in expected.items():
        assert np.abs(state.params[key] - value).max() < 1e-12


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(MLP(width=7, bias=True, norm="sim_bn"), marks=pytest.mark.slow),
        FunctionModel(
            lambda p, x: jnp.tanh(x @ p["A"]) @ p["c"],
            lambda d, seed: {"A": np.ones((d, 2)) / d, "c": np.array([0.5, -0.2])},
        ),
    ],
    ids=["sim_bn", "a user's own function"],
)
def test_any_model_trains_with_the_logistic_loss(model):
    data, phase = xor(n=8, d=3, seed=1), sam(0.05, 0.2, batch=4, epochs=3)
    run = phase, model.init(3, seed=0), 5, 3
    state = engine_training(model, data, Logistic(), *run)
    expected = slow_training(gradient_by_autodiff(model, Logistic(), data), data, *run)
    for key, value in expected.items():
        assert np.abs(state.params[key] - value).max() < 1e-12


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (MLP(width=3, activation="softplus"), "not of σ = softplus"),
        (MLP(width=3, activation="relu^2"), r"not of σ = relu\^2"),
        (
            FunctionModel(lambda p, x: x @ p["w"], lambda d, seed: {"w": np.ones(d)}),
            "FunctionModel",
        ),
    ],
)
def test_a_pattern_is_kept_only_where_there_is_one(model, what):
    with pytest.raises(FlattestError, match=what):
        train(model, xor(n=8, d=3), sam(0.1, 0.1, epochs=1, pattern="kept"))


def test_a_kept_pattern_changes_nothing_where_no_kink_is_crossed():
    data, start = ball(n=10, d=3, seed=1), NET.init(3, seed=2)
    near, kept = sam(0.01, 1e-6, epochs=1), sam(0.01, 1e-6, epochs=1, pattern="kept")
    free, held = (
        engine_training(NET, data, loss("mse"), phase, start, 0, 1).params for phase in (near, kept)
    )
    assert all(np.abs(free[key] - held[key]).max() < 1e-15 for key in free)


def test_a_zero_gradient_perturbs_nothing_and_is_never_nan():
    dead = {"W1": -np.ones((7, 3)), "b1": -9 * np.ones(7), "W2": np.ones(7)}
    data = Dataset(np.ones((4, 3)), np.ones(4))
    for ascent in ("normalized", "unnormalized"):
        phase = sam(0.1, 0.5, epochs=3, ascent=ascent)
        state = engine_training(NET, data, loss("mse"), phase, dead, 0, 3)
        assert state.halt is None
        assert all((state.params[key] == dead[key]).all() for key in dead)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_every_draw_of_an_epoch_has_its_place_and_weight_1_over_its_batch(data):
    n = data.draw(st.integers(1, 40))
    batch = data.draw(st.none() | st.integers(1, n))
    micro = data.draw(st.none() | st.integers(1, batch or n))
    phase = sam(0.1, 0.1, batch=batch, micro_batch=micro, epochs=1)
    draws, mean, share = loop._layout(n, loop._shape(phase))
    weights = mean * share[:, :, None]
    assert len(draws) == phase.steps_per_epoch(n)
    assert weights.sum(axis=(1, 2)) == pytest.approx(1)
    assert sorted(draws[weights > 0]) == list(range(n))
    for step, row in enumerate(draws):
        mine = row[weights[step] > 0]
        assert set(mine // (batch or n)) == {step}
        assert weights[step][weights[step] > 0] == pytest.approx(1 / len(mine))
        assert max((mean[step] > 0).sum(axis=1)) <= (micro or batch or n)


def test_conditions_are_looked_at_after_every_epoch():
    data, params = ball(n=10, d=3, seed=1), NET.init(3, seed=2)

    def after(epochs, **conditions):
        phase = gd(0.02, epochs=60, **conditions)
        return engine_training(NET, data, loss("mse"), phase, params, 0, epochs)

    def value(state):
        f = NET.apply({k: jnp.asarray(v) for k, v in state.params.items()}, data.x)
        return float(np.mean((np.asarray(f) - data.y) ** 2))

    losses = [value(after(e)) for e in range(60)]
    level = losses[30]
    first = next(e for e in range(60) if losses[e] <= level)
    stopped = after(60, stop_loss=level)
    assert (stopped.halt, stopped.epoch) == ("stopped", first)

    changing = {"step_change": StepChange(below=losses[29], factor=3.0)}
    assert not after(29, **changing).changed
    changed = after(30, **changing)
    assert changed.changed
    tripled = gd(0.06, epochs=60)
    problem = Problem(NET, data, loss("mse"), 0)
    expected = loop.advance(problem, tripled, State(changed.params, epoch=30), 5).params
    resumed = loop.advance(problem, gd(0.02, epochs=60, **changing), changed, 5).params
    assert all((resumed[key] == expected[key]).all() for key in expected)


def test_an_epoch_that_diverges_is_dropped_and_its_step_is_named():
    data, params = ball(n=10, d=3, seed=1), NET.init(3, seed=2)
    phase = sgd(0.6, epochs=20)
    state = engine_training(NET, data, loss("mse"), phase, params, 0, 20)
    assert state.halt == "diverged"
    assert state.epoch > 0
    assert all(np.isfinite(value).all() for value in state.params.values())

    def slow(epochs):
        with np.errstate(over="ignore", invalid="ignore"):
            return slow_training(gradient_by_hand(data), data, phase, params, 0, epochs)

    assert all(np.isfinite(value).all() for value in slow(state.epoch).values())
    assert not all(np.isfinite(value).all() for value in slow(state.epoch + 1).values())
    assert state.epoch * 10 <= state.step <= state.epoch * 10 + 10


def test_cutting_an_epoch_range_changes_no_bit():
    data, params = ball(n=10, d=3, seed=1), NET.init(3, seed=2)
    problem = Problem(NET, data, loss("mse"), 3)
    phase = sam(0.05, 0.2, batch=4, epochs=20, label_noise=0.1, warmup=13, stop_loss=0.0)
    whole, cut = loop.advance(problem, phase, State(params), 17), State(params)
    for epochs in (1, 6, 3, 7):
        cut = loop.advance(problem, phase, cut, epochs)
    assert (cut.epoch, cut.step) == (whole.epoch, whole.step) == (17, 51)
    assert all((cut.params[key] == whole.params[key]).all() for key in params)
