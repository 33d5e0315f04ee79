"""The fused engine against plain float64 autodiff, step by step."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flattest.data import Dataset
from flattest.losses import MSE, HalfMSE, Logistic
from flattest.models import MLP, FunctionModel
from flattest.train import fused
from flattest.train.order import label_noise_signs, sample_order

N, D, WIDTH = 11, 5, 21


def phase(**changes):
    defaults = {
        "lr": 0.01,
        "batch": 1,
        "rho": 0.0,
        "ascent": "normalized",
        "micro_batch": None,
        "weight_decay": 0.0,
        "label_noise": 0.0,
        "replacement": False,
        "warmup": 0,
        "project": None,
    }
    return SimpleNamespace(**(defaults | changes))


SAM = phase(rho=0.1)
SGD = phase()


def problem(model, seed=0, n=N, d=D):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    data = Dataset(x, np.sign(x[:, 0] * x[:, 1]))
    return data, model.init(d, seed)


def gradient_of(model, data, loss):
    def batch_loss(params, x, y):
        return loss.value(model.apply(params, x, jnp.asarray(data.x)), y).mean()

    return jax.jit(jax.grad(batch_loss))


def norm(tree):
    return np.sqrt(sum(float((v**2).sum()) for v in tree.values()))


def reference(model, data, loss, phase, params, seed, epochs):
    """The algorithm as written in `contract`, one step after the other; parameters per epoch."""
    gradient = gradient_of(model, data, loss)
    batch = phase.batch or data.n
    order = sample_order(seed, 0, epochs, data.n, phase.replacement)
    signs = label_noise_signs(seed, 0, epochs, data.n)
    step, trail = 0, []
    for indices, noise in zip(order, signs, strict=True):
        for start in range(0, data.n, batch):
            rows = indices[start : start + batch]
            labels = data.y[rows] + phase.label_noise * noise[start : start + batch]
            lr = phase.lr * min(1.0, (step + 1) / max(phase.warmup, 1))
            g = mean_gradient(gradient, phase, params, data.x[rows], labels)
            params = {k: params[k] - lr * (g[k] + phase.weight_decay * params[k]) for k in params}
            params = projected(params, phase.project)
            step += 1
        trail.append(params)
    return trail


def mean_gradient(gradient, phase, params, x, y):
    micro = phase.micro_batch or len(x)
    total = dict.fromkeys(params, 0.0)
    for start in range(0, len(x), micro):
        part, labels = x[start : start + micro], y[start : start + micro]
        g = gradient(params, part, labels)
        size = norm(g)
        if phase.ascent == "normalized":
            step = phase.rho / size if size > 0 else 0.0
        else:
            step = phase.rho
        g = gradient({k: params[k] + step * g[k] for k in params}, part, labels)
        total = {k: total[k] + g[k] * (len(part) / len(x)) for k in params}
    return total


def projected(params, radius):
    first = {k: params[k] for k in ("W1", "b1") if k in params}
    size = norm(first)
    if radius is None or size <= radius:
        return params
    return params | {k: v * (radius / size) for k, v in first.items()}


def distance(a, b):
    return max(np.abs(np.asarray(a[k]) - np.asarray(b[k])).max() for k in b)


def fused_trail(model, data, loss, phase, params, seed, epochs):
    trail, step = [], 0
    for epoch in range(epochs):
        result = fused.advance(
            model,
            data,
            loss,
            phase,
            params,
            seed=seed,
            first_epoch=epoch,
            epochs=1,
            first_step=step,
        )
        assert result.diverged_at is None
        params, step = result.params, step + result.steps
        trail.append(params)
    return trail


BIAS = MLP(WIDTH, bias=True)
CASES = {
    "no bias": (MLP(WIDTH), MSE(), SAM),
    "bias": (BIAS, MSE(), SAM),
    "output bias": (MLP(WIDTH, bias=True, output_bias=True), HalfMSE(), SAM),
    "leaky relu": (MLP(WIDTH, bias=True, activation="leaky_relu:0.2"), MSE(), SAM),
    "softplus": (MLP(WIDTH, bias=True, activation="softplus"), MSE(), SAM),
    "quadratic": (MLP(WIDTH, activation="quadratic"), MSE(), phase(lr=0.003, rho=0.05)),
    "relu cubed": (MLP(WIDTH, activation="relu^3"), MSE(), phase(lr=0.001, rho=0.05)),
    "relu to the 1.5": (MLP(WIDTH, activation="relu^1.5"), MSE(), phase(lr=0.003, rho=0.05)),
    "linear": (MLP(WIDTH, activation="linear"), HalfMSE(), SAM),
    "logistic": (BIAS, Logistic(0.2), phase(lr=0.1, rho=0.2)),
    "layer norm": (MLP(WIDTH, bias=True, norm="sim_ln"), MSE(), phase(lr=0.05, rho=0.1)),
    "layer norm, logistic": (MLP(WIDTH, bias=True, norm="sim_ln"), Logistic(0.2), SAM),
    "layer norm below epsilon": (MLP(WIDTH, bias=True, norm="sim_ln", epsilon=9.0), MSE(), SAM),
    "sgd": (BIAS, MSE(), SGD),
    "weight decay": (BIAS, MSE(), phase(weight_decay=0.3)),
    "weight decay with sam": (BIAS, MSE(), phase(rho=0.1, weight_decay=0.3)),
    "unnormalized ascent": (BIAS, MSE(), phase(rho=0.03, ascent="unnormalized")),
    "label noise": (BIAS, MSE(), phase(label_noise=0.3)),
    "label noise with sam": (BIAS, MSE(), phase(label_noise=0.3, rho=0.05)),
    "with replacement": (BIAS, MSE(), phase(rho=0.1, replacement=True)),
    "warm-up": (BIAS, MSE(), phase(rho=0.1, warmup=100)),
    "projection": (BIAS, MSE(), phase(rho=0.1, project=2.0)),
    "projection and decay": (BIAS, MSE(), phase(rho=0.1, project=2.0, weight_decay=0.1)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_fused_engine_follows_autodiff_step_by_step(name):
    model, loss, rule = CASES[name]
    data, params = problem(model)
    epochs = 300 // N
    expected = reference(model, data, loss, rule, params, 3, epochs)
    found = fused_trail(model, data, loss, rule, params, 3, epochs)
    assert max(distance(a, b) for a, b in zip(found, expected, strict=True)) < 1e-10
    assert distance(params, expected[-1]) > 1e-2


@pytest.mark.parametrize("rho", [-0.1, 0.0])
def test_another_perturbation_would_be_noticed(rho):
    """The comparison above has teeth: the wrong sign or none at all is far outside."""
    model, loss, rule = CASES["bias"]
    data, params = problem(model)
    expected = reference(model, data, loss, rule, params, 3, 5)
    mutant = fused_trail(model, data, loss, phase(rho=rho), params, 3, 5)
    assert distance(mutant[-1], expected[-1]) > 1e-4


CUT = ["bias", "layer norm", "weight decay", "projection and decay", "label noise", "warm-up"]


def single(params):
    return {k: np.asarray(v, np.float32) for k, v in params.items()}


@pytest.mark.parametrize("name", CUT)
def test_where_a_run_is_cut_does_not_change_a_bit(name):
    model, loss, rule = CASES[name]
    data, params = problem(model)
    params = single(params)
    whole = fused.advance(
        model, data, loss, rule, params, seed=5, first_epoch=2, epochs=9, first_step=22
    )
    step, cut, epoch = 22, params, 2
    for epochs in (4, 1, 3, 1):
        part = fused.advance(
            model, data, loss, rule, cut, seed=5, first_epoch=epoch, epochs=epochs, first_step=step
        )
        cut, epoch, step = part.params, epoch + epochs, step + part.steps
    assert step == 22 + whole.steps == 22 + 9 * N
    assert all((whole.params[k] == cut[k]).all() for k in params)
    assert all(whole.params[k].dtype == np.float32 for k in params)


def test_single_precision_stays_near_double_precision():
    model, loss, rule = CASES["bias"]
    data, params = problem(model)
    call = {"seed": 0, "first_epoch": 0, "epochs": 20, "first_step": 0}
    double = fused.advance(model, data, loss, rule, params, **call).params
    found = fused.advance(model, data, loss, rule, single(params), **call).params
    assert distance(found, double) < 2e-4


def test_the_parameters_given_are_left_alone():
    data, params = problem(BIAS)
    before = {k: v.copy() for k, v in params.items()}
    fused.advance(BIAS, data, MSE(), SAM, params, seed=0, first_epoch=0, epochs=3, first_step=0)
    assert distance(params, before) == 0


def test_a_zero_gradient_gives_no_perturbation_and_no_step():
    """All neurons off: g = 0 exactly, and 0/0 must not appear."""
    data, params = problem(BIAS)
    dead = params | {"b1": params["b1"] - 100.0}
    result = fused.advance(
        BIAS, data, MSE(), SAM, dead, seed=0, first_epoch=0, epochs=3, first_step=0
    )
    assert result.diverged_at is None
    assert distance(result.params, dead) == 0


@pytest.mark.parametrize("gap", [1e-6, 1e-12, 1e-15])
def test_the_perturbation_has_norm_rho_however_near_to_interpolation(gap):
    """One sample fitted up to `gap`: g is tiny, g/‖g‖ is not."""
    data, params = problem(BIAS, n=1)
    f = float(BIAS.apply(params, data.x)[0])
    near = Dataset(data.x, np.array([f - gap]))
    gradient = gradient_of(BIAS, near, HalfMSE())
    direction = {k: v / norm(g) for g in [gradient(params, data.x, near.y)] for k, v in g.items()}
    g = gradient({k: params[k] + 0.1 * direction[k] for k in params}, near.x, near.y)
    expected = {k: params[k] - 0.01 * g[k] for k in params}
    found = fused.advance(
        BIAS, near, HalfMSE(), SAM, params, seed=0, first_epoch=0, epochs=1, first_step=0
    ).params
    assert distance(found, expected) < 1e-12


def test_divergence_is_reported_with_its_step():
    data, params = problem(BIAS)
    rule = phase(lr=50.0, rho=0.1)
    result = fused.advance(
        BIAS, data, MSE(), rule, params, seed=0, first_epoch=0, epochs=50, first_step=0
    )
    assert result.diverged_at == result.steps + 1
    with np.errstate(all="ignore"):
        trail = reference(BIAS, data, MSE(), rule, params, 0, result.diverged_at // N + 1)
    finite = [np.isfinite(p["W1"]).all() and np.isfinite(p["W2"]).all() for p in trail]
    assert not finite[-1]
    assert all(finite[:-1])


def test_what_it_cannot_train_it_says_in_a_sentence():
    other = MLP(WIDTH, depth=5)
    assert "depth" in fused.supports(other, MSE(), SAM)
    assert "FunctionModel" in fused.supports(FunctionModel(None, None), MSE(), SAM)
    assert fused.supports(BIAS, MSE(), SAM) is None
