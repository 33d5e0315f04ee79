"""The fused engine against plain float64 autodiff, step by step."""

import pickle
from dataclasses import replace
from functools import lru_cache

import jax
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flattest.errors import FlattestError
from flattest.problem.activations import register_activation
from flattest.problem.data import Dataset
from flattest.problem.losses import MSE, HalfMSE, Logistic
from flattest.problem.models import MLP, FunctionModel
from flattest.training import fused
from flattest.training.algorithms import Phase, StepChange
from flattest.training.kernels import single as single_samples
from flattest.training.order import label_noise_signs, sample_order
from flattest.training.state import Problem, State

pytestmark = pytest.mark.rounding

N, D, WIDTH = 11, 5, 21


def sgd(**settings):
    return Phase(**{"lr": 0.01, "epochs": 1, **settings})


def sam(**settings):
    return sgd(**{"rho": 0.1, **settings})


def problem(model, loss=None, n=N, signs=False):
    rng = np.random.default_rng(0)
    x = rng.choice([-1.0, 1.0], size=(n, D)) if signs else rng.normal(size=(n, D))
    data = Dataset(x, np.sign(x[:, 0] * x[:, 1]))
    return Problem(model, data, loss or MSE(), seed=3), State(model.init(D, 0))


@lru_cache
def gradient_of(model, loss):
    def batch_loss(params, x, y, train_x):
        return loss.value(model.apply(params, x, train_x), y).mean()

    return jax.jit(jax.grad(batch_loss))


def gradient(problem, params, x, y):
    g = gradient_of(problem.model, problem.loss)(params, x, y, problem.data.x)
    return {k: np.asarray(v) for k, v in g.items()}


def norm(tree):
    return np.sqrt(sum((v**2).sum() for v in tree.values()))


def mean_gradient(problem, phase, params, x, y):
    """The mean over micro-batches of ∇ℓ(θ + ε), as `algorithms` states it."""
    micro = phase.micro_batch or len(x)
    total = dict.fromkeys(params, 0.0)
    for start in range(0, len(x), micro):
        part, labels = x[start : start + micro], y[start : start + micro]
        g = gradient(problem, params, part, labels)
        size = norm(g) if phase.ascent == "normalized" else 1.0
        step = phase.rho / size if size > 0 else 0.0
        g = gradient(problem, {k: params[k] + step * g[k] for k in params}, part, labels)
        total = {k: total[k] + g[k] * (len(part) / len(x)) for k in params}
    return total


def projected(params, radius):
    first = {k: params[k] for k in ("W1", "b1") if k in params}
    if radius is None or norm(first) <= radius:
        return params
    return params | {k: v * (radius / norm(first)) for k, v in first.items()}


def reference(problem, phase, params, epochs):
    """The algorithm as written, one step after the other; the parameters after each epoch."""
    data, step, trail = problem.data, 0, []
    order = sample_order(problem.seed, 0, epochs, data.n, phase.replacement)
    if phase.batch is None:
        order[:] = np.arange(data.n)
    signs = label_noise_signs(problem.seed, 0, epochs, data.n)
    batch = phase.batch or data.n
    for indices, noise in zip(order, signs, strict=True):
        for start in range(0, data.n, batch):
            rows = indices[start : start + batch]
            labels = data.y[rows] + phase.label_noise * noise[start : start + batch]
            lr = phase.lr * min(1.0, (step + 1) / max(phase.warmup, 1))
            g = mean_gradient(problem, phase, params, data.x[rows], labels)
            params = {k: params[k] - lr * (g[k] + phase.weight_decay * params[k]) for k in params}
            params = projected(params, phase.project)
            step += 1
        trail.append(params)
    return trail


def fused_trail(problem, phase, state, epochs):
    trail = []
    for _ in range(epochs):
        state = fused.advance(problem, phase, state, 1)
        assert state.halt is None
        trail.append(state.params)
    return trail


def distance(a, b):
    assert set(a) == set(b)
    return max(np.abs(a[k] - b[k]).max() for k in b)


BIAS = MLP(WIDTH, bias=True)
LAYER_NORM = MLP(WIDTH, bias=True, norm="sim_ln")
BATCH_NORM = MLP(WIDTH, bias=True, norm="sim_bn")
THREE_LAYERS = MLP(WIDTH, depth=3, bias=True)
CASES = {
    "no bias": (MLP(WIDTH), MSE(), sam()),
    "bias": (BIAS, MSE(), sam()),
    "output bias": (MLP(WIDTH, bias=True, output_bias=True), HalfMSE(), sam()),
    "leaky relu": (MLP(WIDTH, bias=True, activation="leaky_relu:0.2"), MSE(), sam()),
    "softplus": (MLP(WIDTH, bias=True, activation="softplus"), MSE(), sam()),
    "tanh": (MLP(WIDTH, bias=True, activation="tanh"), MSE(), sam()),
    "silu": (MLP(WIDTH, bias=True, activation="silu"), MSE(), sam()),
    "gelu": (MLP(WIDTH, bias=True, activation="gelu"), MSE(), sam()),
    "quadratic": (MLP(WIDTH, activation="quadratic"), MSE(), sam(lr=0.003, rho=0.05)),
    "relu cubed": (MLP(WIDTH, activation="relu^3"), MSE(), sam(lr=0.001, rho=0.05)),
    "relu to the 1.5": (MLP(WIDTH, activation="relu^1.5"), MSE(), sam(lr=0.003, rho=0.05)),
    "linear": (MLP(WIDTH, activation="linear"), HalfMSE(), sam()),
    "logistic": (BIAS, Logistic(0.2), sam(lr=0.1, rho=0.2)),
    "sgd": (BIAS, MSE(), sgd()),
    "weight decay": (BIAS, MSE(), sgd(weight_decay=0.3)),
    "weight decay with sam": (BIAS, MSE(), sam(weight_decay=0.3)),
    "unnormalized ascent": (BIAS, MSE(), sam(rho=0.03, ascent="unnormalized")),
    "label noise": (BIAS, MSE(), sgd(label_noise=0.3)),
    "label noise with sam": (BIAS, MSE(), sam(label_noise=0.3, rho=0.05)),
    "with replacement": (BIAS, MSE(), sam(replacement=True)),
    "warm-up": (BIAS, MSE(), sam(warmup=100)),
    "projection": (BIAS, MSE(), sam(project=2.0)),
    "projection and decay": (BIAS, MSE(), sam(project=2.0, weight_decay=0.1)),
    "layer norm": (LAYER_NORM, MSE(), sam(lr=0.05)),
    "layer norm, logistic": (LAYER_NORM, Logistic(0.2), sam()),
    "layer norm, projection": (LAYER_NORM, MSE(), sam(project=3.0)),
    "layer norm below epsilon": (MLP(WIDTH, bias=True, norm="sim_ln", epsilon=9.0), MSE(), sam()),
    "batch norm": (BATCH_NORM, MSE(), sam(lr=0.005)),
    "batch norm, logistic": (BATCH_NORM, Logistic(0.2), sam(lr=0.1)),
    "batch norm, sgd": (BATCH_NORM, MSE(), sgd(lr=0.005, weight_decay=0.1)),
    "batch norm, projection": (BATCH_NORM, MSE(), sam(lr=0.005, project=2.0)),
    "batch norm, softplus": (
        MLP(WIDTH, bias=True, norm="sim_bn", activation="softplus"),
        MSE(),
        sam(lr=0.005),
    ),
    "three layers": (THREE_LAYERS, MSE(), sam()),
    "three layers, sgd": (THREE_LAYERS, MSE(), sgd(weight_decay=0.05)),
    "three layers, projection": (THREE_LAYERS, Logistic(0.2), sam(project=2.0, weight_decay=0.1)),
    "three layers, output bias": (
        MLP(WIDTH, depth=3, output_bias=True, activation="leaky_relu"),
        HalfMSE(),
        sam(ascent="unnormalized", rho=0.03),
    ),
    "gd": (BIAS, MSE(), sgd(batch=None, lr=0.05, weight_decay=0.05)),
    "gd, output bias, warm-up": (
        MLP(WIDTH, bias=True, output_bias=True),
        HalfMSE(),
        sgd(batch=None, lr=0.05, warmup=20),
    ),
    "gd, label noise": (BIAS, MSE(), sgd(batch=None, lr=0.05, label_noise=0.3)),
    "sam, full batch": (BIAS, MSE(), sam(batch=None, lr=0.05)),
    "minibatch": (BIAS, Logistic(0.2), sgd(batch=4, lr=0.1, weight_decay=0.01)),
    "minibatch, sam": (BIAS, MSE(), sam(batch=4, project=2.0)),
    "micro-batches": (BIAS, MSE(), sam(batch=7, micro_batch=3)),
    "each sample": (
        MLP(WIDTH, bias=True, output_bias=True),
        MSE(),
        sam(batch=None, micro_batch=1, lr=0.05),
    ),
    "each sample, minibatch": (BIAS, Logistic(0.2), sam(batch=4, micro_batch=1, label_noise=0.1)),
    "each sample, unnormalized": (
        BIAS,
        MSE(),
        sam(batch=None, micro_batch=1, ascent="unnormalized", rho=0.03),
    ),
    "each sample, layer norm": (LAYER_NORM, MSE(), sam(batch=None, micro_batch=1)),
    "each sample, batch norm": (BATCH_NORM, MSE(), sam(batch=4, micro_batch=1, lr=0.005)),
    "each sample, softplus": (
        MLP(WIDTH, bias=True, activation="softplus"),
        MSE(),
        sam(batch=None, micro_batch=1),
    ),
    "each sample, three layers": (THREE_LAYERS, MSE(), sam(batch=None, micro_batch=1)),
    "each sample, three layers, output bias": (
        MLP(WIDTH, depth=3, output_bias=True, activation="leaky_relu"),
        HalfMSE(),
        sam(batch=5, micro_batch=1, project=2.0),
    ),
    "minibatch, layer norm": (LAYER_NORM, MSE(), sam(batch=4)),
    "minibatch, batch norm": (BATCH_NORM, MSE(), sam(batch=4, lr=0.005)),
    "repeated draws, batch norm": (BATCH_NORM, MSE(), sam(batch=4, lr=0.005, replacement=True)),
    "minibatch, three layers": (THREE_LAYERS, MSE(), sam(batch=4)),
}


widths = st.integers(1, 40)


def replace_width(model, width):
    return msgspec.structs.replace(model, width=width)


def case(name):
    model, loss, phase = CASES[name]
    return *problem(model, loss), phase


# Every other one here; `make test-more` takes them all, with JAX's optimizer on.
@pytest.mark.parametrize(
    "name",
    [pytest.param(c, marks=[pytest.mark.slow] if i % 2 else []) for i, c in enumerate(CASES)],
)
def test_the_fused_engine_follows_autodiff_step_by_step(name):
    task, state, phase = case(name)
    epochs = 25
    expected = reference(task, phase, state.params, epochs)
    found = fused_trail(task, phase, state, epochs)
    assert max(distance(a, b) for a, b in zip(found, expected, strict=True)) < 1e-10
    assert distance(state.params, expected[-1]) > 1e-2


@pytest.mark.parametrize("activation", ["relu", "softplus"])
def test_batch_norm_on_inputs_of_signs_follows_autodiff(activation):
    """Where all inputs are ±1 the products come from tables."""
    model = MLP(WIDTH, norm="sim_bn", bias=True, activation=activation)
    task, state = problem(model, n=37, signs=True)
    expected = reference(task, sam(lr=0.005), state.params, 5)
    found = fused_trail(task, sam(lr=0.005), state, 5)
    assert max(distance(a, b) for a, b in zip(found, expected, strict=True)) < 1e-10
    assert distance(state.params, expected[-1]) > 1e-2


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 20),
    d=st.integers(1, 18),
    model=st.builds(
        replace_width, st.sampled_from([BIAS, LAYER_NORM, BATCH_NORM, THREE_LAYERS]), widths
    ),
    phase=st.sampled_from([sam(), sgd(weight_decay=0.1), sam(project=1.0, label_noise=0.2)]),
    signs=st.booleans(),
)
def test_the_kernel_for_single_samples_is_that_for_batches_at_batch_size_one(
    n, d, model, phase, signs
):
    rng = np.random.default_rng(n + 100 * d)
    x = rng.choice([-1.0, 1.0], size=(n, d)) if signs else rng.normal(size=(n, d))
    task = Problem(model, Dataset(x, np.sign(rng.normal(size=n))), MSE(), seed=1)
    state = State(model.init(d, 0))
    found = fused.advance(task, phase, state, 3).params
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "_layout", lambda *_: fused._flat)
        expected = fused.advance(task, phase, state, 3).params
    assert distance(found, expected) < 1e-10


@pytest.mark.parametrize(
    "name",
    [
        "bias",
        "batch norm",
        "three layers",
        "minibatch, sam",
        "each sample",
        "each sample, three layers",
    ],
)
@pytest.mark.parametrize("factor", [-1.0, 0.0])
def test_another_perturbation_would_be_noticed(name, factor, monkeypatch):
    """The comparison above has teeth: ε with the wrong sign, or none at all, is far outside."""
    task, state, phase = case(name)
    right = fused._rule
    expected = fused.advance(task, phase, state, 5).params
    monkeypatch.setattr(fused, "_rule", lambda *a: right(*a)._replace(rho=factor * phase.rho))
    assert distance(fused.advance(task, phase, state, 5).params, expected) > 1e-5


def single(state):
    return replace(state, params={k: np.float32(v) for k, v in state.params.items()})


CUT = ["bias", "layer norm", "weight decay", "projection and decay", "label noise", "warm-up"]
CUT += ["batch norm", "three layers, projection", "minibatch", "gd, label noise"]


@pytest.mark.parametrize("name", CUT)
def test_where_a_run_is_cut_does_not_change_a_bit(name):
    task, state, phase = case(name)
    start = single(state)
    whole = fused.advance(task, phase, start, 9)
    cut = start
    for epochs in (4, 1, 3, 1):
        cut = fused.advance(task, phase, cut, epochs)
    assert (cut.step, cut.epoch) == (whole.step, whole.epoch)
    assert whole.step == 9 * phase.steps_per_epoch(N)
    assert all((whole.params[k] == cut.params[k]).all() for k in cut.params)
    assert all(value.dtype == np.float32 for value in cut.params.values())


@pytest.mark.parametrize("name", ["bias", "batch norm", "three layers", "minibatch"])
def test_single_precision_stays_near_double_precision(name):
    task, state, phase = case(name)
    double = fused.advance(task, phase, state, 10).params
    found = fused.advance(task, phase, single(state), 10).params
    assert distance(found, double) < 1e-3
    assert distance(found, double) > 0


def test_the_parameters_given_are_left_alone():
    for name in ("bias", "batch norm", "three layers", "minibatch"):
        task, state, phase = case(name)
        before = {k: v.copy() for k, v in state.params.items()}
        fused.advance(task, phase, state, 2)
        assert distance(state.params, before) == 0


@pytest.mark.parametrize("name", ["bias", "layer norm", "batch norm", "three layers", "minibatch"])
def test_a_zero_gradient_gives_no_perturbation_and_no_step(name):
    """All neurons off: g = 0 exactly, and 0/0 must not appear."""
    model, loss, _ = CASES[name]
    task, state = problem(model, loss)
    dead = replace(state, params=state.params | {"b1": state.params["b1"] - 100.0})
    batch = CASES[name][2].batch
    after = fused.advance(task, sam(batch=batch), dead, 3)
    assert after.halt is None
    assert distance(after.params, dead.params) == 0


@pytest.mark.parametrize("name", ["bias", "batch norm", "three layers", "minibatch"])
def test_what_decays_for_ever_becomes_zero(name):
    """Halved at every step, dead weights would linger among the denormal numbers, at great cost."""
    model, loss, phase = CASES[name]
    task, state = problem(model, loss)
    dead = single(replace(state, params=state.params | {"b1": state.params["b1"] - 100.0}))
    after = fused.advance(task, sgd(lr=0.5, weight_decay=1.0, batch=phase.batch), dead, 60)
    assert all((value == 0).all() for value in after.params.values())


@pytest.mark.parametrize("model", [BIAS, THREE_LAYERS], ids=["two layers", "three layers"])
@pytest.mark.parametrize("gap", [1e-6, 1e-12, 1e-15])
def test_the_perturbation_has_norm_rho_however_near_to_interpolation(model, gap):
    """One sample fitted up to `gap`: g is tiny, g/‖g‖ is not."""
    task, state = problem(model, HalfMSE(), n=1)
    f = float(model.apply(state.params, task.data.x)[0])
    task = replace(task, data=Dataset(task.data.x, np.array([f - gap])))
    expected = reference(task, sam(), state.params, 1)[0]
    found = fused.advance(task, sam(), state, 1).params
    assert distance(found, expected) < 1e-12


@pytest.mark.parametrize("name", ["bias", "batch norm", "three layers", "minibatch"])
def test_a_diverged_epoch_is_reported_with_its_step_and_not_applied(name):
    model, _, phase = CASES[name]
    task, state = problem(model)
    phase = sam(lr=1e4, batch=phase.batch)
    after = fused.advance(task, phase, state, 400)
    assert after.halt == "diverged"
    with np.errstate(all="ignore"):
        trail = [state.params, *reference(task, phase, state.params, after.epoch + 1)]
    finite = [all(np.isfinite(v).all() for v in params.values()) for params in trail]
    assert finite == [True] * (after.epoch + 1) + [False]
    per_epoch = phase.steps_per_epoch(N)
    assert 0 <= after.step - after.epoch * per_epoch <= per_epoch
    again = fused.advance(task, phase, state, after.epoch)
    assert again.halt is None
    assert distance(again.params, after.params) == 0


@pytest.mark.parametrize("name", ["bias", "batch norm", "three layers", "gd"])
def test_loss_conditions_are_looked_at_after_every_epoch(name):
    model, _, phase = CASES[name]
    task, state = problem(model)
    plain = sgd(lr=phase.lr, batch=phase.batch)
    trail = reference(task, plain, state.params, 12)
    losses = [task.loss.value(np.asarray(model.apply(p, task.data.x, task.data.x)), task.data.y)
              for p in trail]  # fmt: skip
    losses = [v.mean() for v in losses]
    level = np.sort(losses)[4] * (1 + 1e-9)
    first = next(k for k, value in enumerate(losses) if value <= level) + 1
    stopping = sgd(lr=phase.lr, batch=phase.batch, stop_loss=level)
    stopped = fused.advance(task, stopping, state, 12)
    assert (stopped.halt, stopped.epoch) == ("stopped", first)
    assert distance(stopped.params, trail[first - 1]) < 1e-10
    changing = sgd(lr=phase.lr, batch=phase.batch, step_change=StepChange(level, 0.5))
    changed = fused.advance(task, changing, state, first + 1)
    tail = fused.advance(
        task, sgd(lr=phase.lr / 2, batch=phase.batch), replace(stopped, halt=None), 1
    )
    assert changed.changed
    assert distance(changed.params, tail.params) < 1e-12


def test_strong_decay_of_three_layers_stays_within_single_precision():
    """η λ = 0.5 over 400 steps: the scale that W2 is kept with would fall to 1e-120."""
    task, state = problem(THREE_LAYERS, n=400)
    phase = sgd(lr=0.05, weight_decay=10.0)
    single = replace(state, params={k: v.astype(np.float32) for k, v in state.params.items()})
    after, expected = (fused.advance(task, phase, start, 1) for start in (single, state))
    assert after.halt is None
    assert distance(after.params, expected.params) < 1e-6


def test_labels_that_may_be_written_need_no_other_kernel():
    """Those of a dataset that came from another process may be."""
    task, state = problem(BIAS)
    expected = fused.advance(task, sam(), state, 2).params
    compiled = len(single_samples.run.overloads)
    sent = replace(task, data=pickle.loads(pickle.dumps(task.data)))
    assert sent.data.y.flags.writeable
    assert distance(fused.advance(sent, sam(), state, 2).params, expected) == 0
    assert len(single_samples.run.overloads) == compiled


def test_what_it_cannot_train_it_says_in_a_sentence(monkeypatch):
    assert "depth" in fused.supports(MLP(WIDTH, depth=5), MSE(), sam())
    assert "FunctionModel" in fused.supports(FunctionModel(None, None), MSE(), sam())
    assert "weight decay < 1" in fused.supports(BIAS, MSE(), sgd(lr=0.5, weight_decay=2.0))
    change = StepChange(below=0.1, factor=4.0)
    assert fused.supports(BIAS, MSE(), sgd(lr=0.4, weight_decay=1.0)) is None
    assert fused.supports(BIAS, MSE(), sgd(lr=0.4, weight_decay=1.0, step_change=change))
    register_activation("relu:mine", jax.numpy.tanh)
    assert "relu:mine" in fused.supports(MLP(WIDTH, activation="relu:mine"), MSE(), sam())
    assert all(fused.supports(*settings) is None for settings in CASES.values())
    monkeypatch.delitem(fused.NORMS, "sim_ln")
    assert "norm 'sim_ln'" in fused.supports(MLP(WIDTH, norm="sim_ln"), MSE(), sam())
    task, state = problem(MLP(WIDTH, depth=5))
    with pytest.raises(FlattestError, match="depth 2 and 3"):
        fused.advance(task, sam(), state, 1)
