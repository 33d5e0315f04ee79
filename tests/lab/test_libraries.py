"""Modules of Equinox, Flax and PyTorch in a setup: trained, measured, told apart, resumed."""

import jax
import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.problem.models import declared
from flattest.training.keys import run_key
from flattest.training.train import train

pytestmark = pytest.mark.peer

N, D, EPOCHS = 12, 3, 6
X = np.random.default_rng(1).normal(size=(20, D))
DATA = ft.Dataset(X[:N], np.sign(X[:N, 0]), test_x=X[N:], test_y=np.sign(X[N:, 0]))
CLASSES = ft.Dataset(X[:N], X[:N].argmax(1), test_x=X[N:], test_y=X[N:].argmax(1))
FINE = ft.Log(points=1, measures=("training", "test"))
WIDTH = 5


def equinox_model(width=WIDTH):
    eqx = pytest.importorskip("equinox")
    return ft.equinox(lambda d, key: eqx.nn.MLP(d, "scalar", width, 1, key=key))


def linen_model(width=WIDTH):
    nn = pytest.importorskip("flax.linen")
    return ft.flax(nn.Sequential([nn.Dense(width), nn.relu, nn.Dense(1)]))


def nnx_model(width=WIDTH):
    nnx = pytest.importorskip("flax.nnx")

    def two_layers(d, rngs):
        layers = nnx.Linear(d, width, rngs=rngs), nnx.relu, nnx.Linear(width, 1, rngs=rngs)
        return nnx.Sequential(*layers)

    return ft.flax(two_layers)


def torch_model(width=WIDTH, outputs=1):
    nn = pytest.importorskip("torch.nn")
    return ft.pytorch(
        lambda d: nn.Sequential(nn.Linear(d, width), nn.ReLU(), nn.Linear(width, outputs))
    )


MODELS = {
    "equinox": equinox_model,
    "linen": linen_model,
    "nnx": nnx_model,
    "torch": torch_model,
}


def as_two_layers(params):
    """W1 (m, d), b1, W2 (m,), b2 (), however the library names and turns them."""
    W1, b1, W2, b2 = sorted(params.values(), key=lambda p: (-np.size(p), -np.ndim(p)))[:4]
    by_shape = {np.shape(p): p for p in (W1, b1, W2, b2)}
    first = by_shape.get((WIDTH, D), by_shape.get((D, WIDTH), np.empty(0)).T)
    last = by_shape.get((1, WIDTH), by_shape.get((WIDTH, 1)))
    return first, by_shape[(WIDTH,)], np.ravel(last), np.ravel(by_shape[(1,)])[0]


@pytest.mark.parametrize("name", MODELS)
def test_a_librarys_module_is_the_function_it_was(name):
    model = MODELS[name]()
    params = model.init(D, seed=3)
    W1, b1, W2, b2 = as_two_layers(params)
    expected = np.maximum(X @ W1.T + b1, 0) @ W2 + b2
    assert ft.predict(model, params, X, X) == pytest.approx(expected, rel=1e-6, abs=1e-7)
    again, other = model.init(D, seed=3), model.init(D, seed=4)
    assert all(np.array_equal(params[key], again[key]) for key in params)
    assert any(not np.array_equal(params[key], other[key]) for key in params)


@pytest.mark.parametrize("name", MODELS)
def test_a_librarys_module_is_known_by_what_makes_it(name):
    def key(model):
        return run_key(declared(model), 0)

    assert key(MODELS[name]()) == key(MODELS[name]())
    assert key(MODELS[name]()) != key(MODELS[name](WIDTH + 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["equinox", "linen", "nnx"])
def test_a_librarys_module_is_trained_as_the_function_it_is(name):
    model, phase = MODELS[name](), ft.adam(0.05, batch=4, rho=0.05, epochs=EPOCHS)
    run = train(model, DATA, phase, dtype="float64", log=FINE)
    plain = ft.FunctionModel(lambda p, x: model.apply(p, x), model.init)
    expected = train(plain, DATA, phase, dtype="float64", log=FINE)
    assert all(np.array_equal(run.params[key], expected.params[key]) for key in run.params)
    assert run.backend == "jax"


def twin():
    """The PyTorch network of `torch_model` in JAX."""

    def apply(p, x):
        return (jax.nn.relu(x @ p["0.weight"].T + p["0.bias"]) @ p["2.weight"].T + p["2.bias"])[
            :, 0
        ]

    return ft.FunctionModel(apply, torch_model().init)


STEPS = {"batch": 4, "epochs": EPOCHS}
PHASES = {
    "sgd": ft.sgd(0.05, weight_decay=0.1, **STEPS),
    "gd": ft.gd(0.05, epochs=EPOCHS),
    "sam": ft.sam(0.05, 0.1, **STEPS),
    "m-sam": ft.sam(0.05, 0.1, micro_batch=3, **STEPS),
    "unnormalized": ft.sam(0.05, 0.1, ascent="unnormalized", **STEPS),
    "asam": ft.asam(0.05, 0.3, **STEPS),
    "gsam": ft.gsam(0.05, 0.1, 0.4, **STEPS),
    "momentum": ft.momentum(0.02, 0.8, weight_decay=0.1, **STEPS),
    "nesterov": ft.momentum(0.02, 0.8, nesterov=True, rho=0.1, **STEPS),
    "adam": ft.adam(0.02, weight_decay=0.1, **STEPS),
    "sam around adam": ft.adam(0.02, rho=0.1, **STEPS),
    "adamw": ft.adamw(0.02, 0.1, **STEPS),
    "label noise": ft.label_noise_sgd(0.02, 0.2, **STEPS),
    "clipped, cosine, warm-up": ft.sgd(0.1, clip=0.3, decay=ft.Cosine(0.1), warmup=5, **STEPS),
    "steps, i.i.d.": ft.sgd(0.1, decay=ft.Steps((2,), 0.5), replacement=True, **STEPS),
    "step change": ft.gd(0.01, step_change=ft.StepChange(10.0, 3.0), epochs=EPOCHS),
    "a smaller last batch": ft.sgd(0.05, batch=5, epochs=EPOCHS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PHASES)
def test_an_algorithm_takes_the_same_steps_in_pytorch_and_in_jax(name):
    in_torch, in_jax = (
        train(model, DATA, PHASES[name], dtype="float64", log=FINE, seed=5)
        for model in (torch_model(), twin())
    )
    assert (in_torch.backend, in_jax.backend) == ("torch", "jax")
    for key, value in in_jax.params.items():
        assert np.abs(in_torch.params[key] - value).max() <= 1e-10 * np.abs(value).max(), key
    assert in_torch["test_error"][-1] == in_jax["test_error"][-1]


def test_another_rate_is_told_apart():
    run = train(torch_model(), DATA, PHASES["adam"], dtype="float64", log=FINE)
    wrong = msgspec.structs.replace(PHASES["adam"], lr=0.02 * (1 + 1e-6))
    other = train(twin(), DATA, wrong, dtype="float64", log=FINE)
    assert any(np.abs(run.params[k] - v).max() > 1e-8 for k, v in other.params.items())


def test_any_torch_optimizer_takes_its_own_steps_and_sam_goes_around_it():
    torch = pytest.importorskip("torch")
    phase = ft.torch_optimizer(lambda p: torch.optim.RMSprop(p, lr=0.01), rho=0.1, **STEPS)
    run = train(torch_model(), DATA, phase, dtype="float64", log=FINE, seed=5)
    ours = ft.torch_optimizer(lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1), **STEPS)
    same = train(torch_model(), DATA, ours, dtype="float64", log=FINE, seed=5)
    sgd = train(torch_model(), DATA, PHASES["sgd"], dtype="float64", log=FINE, seed=5)
    assert all(np.array_equal(same.params[key], value) for key, value in sgd.params.items())
    assert run["train_loss"][-1] < run["train_loss"][0]


def test_classes_are_trained_in_pytorch_and_measured_there():
    model = torch_model(outputs=3)
    log = ft.Log(points=1)
    run = train(model, CLASSES, ft.adam(0.02, **STEPS), loss="cross_entropy", log=log)
    measured = ft.torch.trace(
        model.filled(run.params, D), (CLASSES.x, CLASSES.y.astype(int)), "cross_entropy"
    )
    assert run["sharpness"][-1] == pytest.approx(float(measured), rel=1e-12)
    f = ft.predict(model, run.params, X[N:], X)
    assert run["test_error"][-1] == np.mean(f.argmax(1) != X[N:].argmax(1))


@pytest.mark.parametrize("name", ["sgd", "sam around adam", "nesterov"])
def test_a_run_in_pytorch_that_was_interrupted_goes_on_with_the_same_bits(name, tmp_path):
    phase = msgspec.structs.replace(PHASES[name], epochs=40)
    whole = train(torch_model(), DATA, phase, log=FINE)

    def interrupt(progress):
        if 0.3 < progress.fraction < 0.9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            torch_model(),
            DATA,
            phase,
            log=FINE,
            checkpoint=tmp_path,
            checkpoint_seconds=0.0,
            progress=interrupt,
            progress_seconds=0.0,
        )
    resumed = train(torch_model(), DATA, phase, log=FINE, checkpoint=tmp_path)
    assert all(np.array_equal(resumed.params[key], value) for key, value in whole.params.items())


def test_an_optimizer_that_returns_nan_is_a_run_that_diverged():
    torch = pytest.importorskip("torch")
    phase = ft.torch_optimizer(lambda p: torch.optim.SGD(p, lr=float("inf")), **STEPS)
    run = train(torch_model(), DATA, phase, log=FINE)
    assert run.status == "diverged"
    assert all(np.isfinite(value).all() for value in run.params.values())


def bad_input():
    torch, nn = pytest.importorskip("torch"), pytest.importorskip("torch.nn")
    eqx, linen = pytest.importorskip("equinox"), pytest.importorskip("flax.linen")
    normalized = ft.pytorch(lambda d: nn.Sequential(nn.Linear(d, 4), nn.BatchNorm1d(4)))
    dropping = ft.pytorch(lambda d: nn.Sequential(nn.Dropout(0.5), nn.Linear(d, 1)))
    batch_norm = ft.flax(linen.Sequential([linen.BatchNorm(use_running_average=False)]))
    torch_sgd = ft.torch_optimizer(lambda p: torch.optim.SGD(p, lr=0.1), epochs=1)
    sgd = ft.sgd(0.1, epochs=1)
    return {
        "keeps 1.num_batches_tracked, 1.running_mean": lambda: train(normalized, DATA, sgd),
        "keeps Dropout; only networks": lambda: train(dropping, DATA, sgd),
        "keeps batch_stats": lambda: train(batch_norm, DATA, sgd),
        "made a int, not a torch.nn.Module": lambda: train(ft.pytorch(lambda d: 3), DATA, sgd),
        r"ft.pytorch\(lambda d: …\)": lambda: train(nn.Linear(D, 1), DATA, sgd),
        r"ft.equinox\(lambda d, key: …\)": lambda: train(
            eqx.nn.Linear(D, 1, key=jax.random.key(0)), DATA, sgd
        ),
        "cannot be applied to 3 inputs": lambda: train(
            ft.pytorch(lambda d: nn.Linear(d + 1, 1)), DATA, sgd
        ),
        r"shape \(12,\), not \(12, 2\)": lambda: train(torch_model(outputs=2), DATA, sgd),
        "a jax network cannot be trained by a torch optimizer": lambda: train(
            twin(), DATA, torch_sgd
        ),
        "a pytorch module cannot be trained by a jax step": lambda: train(
            torch_model(), DATA, ft.own_step(lambda p, batch, key: p, epochs=1)
        ),
        "leave backend at 'auto'": lambda: train(torch_model(), DATA, sgd, backend="jax"),
        "has a weight decay of its own": lambda: ft.torch_optimizer(
            lambda p: p, weight_decay=0.1, epochs=1
        ),
        "A torch.optim.Optimizer is to be made": lambda: train(
            torch_model(), DATA, ft.torch_optimizer(lambda p: 3, epochs=1)
        ),
        "The optimizer's step failed": lambda: train(
            torch_model(), DATA, ft.torch_optimizer(torch.optim.LBFGS, epochs=1)
        ),
    }


def test_what_makes_no_sense_is_refused_in_one_sentence():
    for sentence, make in bad_input().items():
        with pytest.raises(ft.FlattestError, match=f"(?i){sentence}"):
            make()


@pytest.mark.slow
def test_the_search_takes_the_same_steps_in_pytorch_and_in_jax():
    loss, model = ft.CrossEntropy(3, 0.1), torch_model(outputs=3, width=12)

    def apply(p, x):
        return jax.nn.relu(x @ p["0.weight"].T + p["0.bias"]) @ p["2.weight"].T + p["2.bias"]

    starts = [ft.FunctionModel(apply, model.init), model]
    bad = ft.bad_interpolator(model, CLASSES, 3, 0, loss)
    in_jax, in_torch = (ft.search_flattest(m, CLASSES, bad, loss, steps=5) for m in starts)
    assert in_torch.history == pytest.approx(in_jax.history, rel=1e-9)
    assert in_torch.end.sharpness == pytest.approx(
        ft.certify(model, in_torch.params, CLASSES, loss).trace, rel=1e-9
    )
    assert in_torch.start.test_error == in_jax.start.test_error
