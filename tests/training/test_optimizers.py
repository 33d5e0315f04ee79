"""Base optimizers, ascents and schedules against what a user would write, step by step."""

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import flattest as ft
from flattest.training.order import sample_order

N, D, EPOCHS = 12, 3, 6
DATA = ft.xor(N, D, seed=3)
NET = ft.MLP(width=7, bias=True)
START = NET.init(D, seed=0)
FINE = ft.Log(points=2, measures=("training",))


def trained(phase, **settings):
    start = {"params": START, "dtype": "float64", "seed": 7, "log": FINE}
    return ft.train(NET, DATA, phase, **start, **settings)


def batches(phase):
    size = phase.batch or N
    for epoch in range(EPOCHS):
        order = sample_order(7, epoch, 1, N, False)[0] if phase.batch else np.arange(N)
        for start in range(0, N, size):
            yield DATA.x[order[start : start + size]], DATA.y[order[start : start + size]]


def loss(params, x, y):
    return jnp.mean((NET.apply(params, x) - y) ** 2)


gradient = jax.jit(jax.grad(loss))


def flat(tree):
    return np.concatenate([np.ravel(tree[name]) for name in START])


def unflat(vector):
    sizes = np.cumsum([np.size(p) for p in START.values()])[:-1]
    parts = np.split(np.asarray(vector), sizes)
    return {n: v.reshape(np.shape(p)) for (n, p), v in zip(START.items(), parts, strict=True)}


def by_hand(phase, direction):
    """θ ← θ − η_t direction(g, θ, t), all vectors."""
    theta = flat(START)
    for t, (x, y) in enumerate(batches(phase)):

        def g(at, x=x, y=y):
            return flat(gradient(unflat(at), x, y))

        theta = theta - direction(g, theta, t)
    return theta


class HandAdam:
    def __init__(self, lr, decay=0.0, decoupled=0.0):
        self.lr, self.decay, self.decoupled = lr, decay, decoupled
        self.m = self.s = 0.0

    def __call__(self, g, theta, t):
        u = g(theta) + self.decay * theta
        self.m = 0.9 * self.m + 0.1 * u
        self.s = 0.999 * self.s + 0.001 * u**2
        corrected = self.m / (1 - 0.9 ** (t + 1)), self.s / (1 - 0.999 ** (t + 1))
        return self.lr * (corrected[0] / (np.sqrt(corrected[1]) + 1e-8) + self.decoupled * theta)


class HandMomentum:
    def __init__(self, lr, nesterov):
        self.lr, self.nesterov, self.b = lr, nesterov, 0.0

    def __call__(self, g, theta, t):
        u = g(theta) + 0.1 * theta
        self.b = 0.8 * self.b + u
        return self.lr * (u + 0.8 * self.b if self.nesterov else self.b)


def hand_asam(g, theta, t):
    at, T = g(theta), np.abs(theta)
    return 0.05 * g(theta + 0.3 * T**2 * at / np.linalg.norm(T * at))


def hand_gsam(g, theta, t):
    at = g(theta)
    above = g(theta + 0.1 * at / np.linalg.norm(at))
    parallel = above * (at @ above) / (above @ above)
    return 0.05 * (above - 0.4 * (at - parallel))


def hand_clipped(g, theta, t):
    u = g(theta)
    return 0.05 * (u * min(1.0, 0.7 / np.linalg.norm(u)) + 0.1 * theta)


def hand_cosine(g, theta, t):
    total = EPOCHS * N // 4
    return 0.1 * (0.2 + 0.8 * (1 + np.cos(np.pi * t / total)) / 2) * g(theta)


def hand_steps(g, theta, t):
    epoch = t // (N // 4)
    return 0.1 * 0.5 ** ((epoch >= 2) + (epoch >= 5)) * g(theta)


def sam_around_adam():
    adam = HandAdam(0.05)

    def direction(g, theta, t):
        at = g(theta)
        return adam(lambda _: g(theta + 0.1 * at / np.linalg.norm(at)), theta, t)

    return direction


CASES = {
    "adam": (ft.adam(0.05, batch=4, epochs=EPOCHS), lambda: HandAdam(0.05)),
    "adam, L2": (
        ft.adam(0.05, batch=4, weight_decay=0.2, epochs=EPOCHS),
        lambda: HandAdam(0.05, decay=0.2),
    ),
    "adamw": (
        ft.adamw(0.05, 0.2, batch=4, epochs=EPOCHS),
        lambda: HandAdam(0.05, decoupled=0.2),
    ),
    "momentum": (
        ft.momentum(0.02, 0.8, batch=4, weight_decay=0.1, epochs=EPOCHS),
        lambda: HandMomentum(0.02, nesterov=False),
    ),
    "nesterov": (
        ft.momentum(0.02, 0.8, nesterov=True, batch=4, weight_decay=0.1, epochs=EPOCHS),
        lambda: HandMomentum(0.02, nesterov=True),
    ),
    "asam": (ft.asam(0.05, 0.3, batch=4, epochs=EPOCHS), lambda: hand_asam),
    "gsam": (ft.gsam(0.05, 0.1, 0.4, batch=4, epochs=EPOCHS), lambda: hand_gsam),
    "sam around adam": (ft.adam(0.05, batch=4, rho=0.1, epochs=EPOCHS), sam_around_adam),
    "clipped": (
        ft.sgd(0.05, batch=4, clip=0.7, weight_decay=0.1, epochs=EPOCHS),
        lambda: hand_clipped,
    ),
    "cosine": (ft.sgd(0.1, batch=4, decay=ft.Cosine(0.2), epochs=EPOCHS), lambda: hand_cosine),
    "steps": (ft.sgd(0.1, batch=4, decay=ft.Steps((2, 5), 0.5), epochs=EPOCHS), lambda: hand_steps),
}


@pytest.mark.parametrize("name", CASES)
def test_an_algorithm_is_its_formula(name):
    phase, direction = CASES[name]
    found, expected = flat(trained(phase).params), by_hand(phase, direction())
    assert np.abs(found - expected).max() <= 1e-10 * np.abs(expected).max()


def test_a_wrong_formula_is_told_apart():
    found = flat(trained(CASES["adam"][0]).params)
    wrong = by_hand(CASES["adam"][0], HandAdam(0.05, decoupled=1e-6))
    assert np.abs(found - wrong).max() > 1e-8 * np.abs(found).max()


def own_sgd(params, batch, key):
    g = jax.grad(loss)(params, *batch)
    return {name: p - 0.05 * g[name] for name, p in params.items()}


def noisy(params, batch, key):
    return {name: p + jax.random.normal(key, p.shape) for name, p in params.items()}


def test_a_users_own_step_takes_the_place_of_ours():
    ours = trained(ft.sgd(0.05, batch=4, epochs=EPOCHS), backend="jax")
    own = trained(ft.own_step(own_sgd, batch=4, epochs=EPOCHS))
    assert np.abs(flat(own.params) - flat(ours.params)).max() < 1e-12


def test_a_users_own_step_has_a_key_of_its_own_at_every_step():
    whole = flat(trained(ft.own_step(noisy, batch=4, epochs=EPOCHS)).params)
    phases = [ft.own_step(noisy, batch=4, epochs=2), ft.own_step(noisy, batch=4, epochs=4)]
    assert np.array_equal(flat(trained(phases).params), whole)
    spread = (whole - flat(START)) / np.sqrt(EPOCHS * 3)
    assert 0.3 < spread.std() < 2  # with one key for all steps: 4.2


@pytest.mark.parametrize(
    "phase",
    [
        ft.adam(0.05, batch=4, rho=0.1, epochs=40),
        ft.momentum(0.02, batch=4, epochs=40),
        ft.own_step(noisy, batch=4, epochs=40),
    ],
    ids=["adam", "momentum", "own"],
)
def test_a_run_that_was_interrupted_keeps_the_optimizers_memory(phase, tmp_path):
    whole = trained(phase)

    def interrupt(progress):
        if 0.3 < progress.fraction < 0.9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(
            phase,
            checkpoint=tmp_path,
            checkpoint_seconds=0.0,
            progress=interrupt,
            progress_seconds=0.0,
        )
    resumed = trained(phase, checkpoint=tmp_path)
    assert np.array_equal(flat(resumed.params), flat(whole.params))


def test_every_phase_begins_with_an_empty_memory():
    two = trained([ft.adam(0.05, batch=4, epochs=EPOCHS), ft.adam(0.05, batch=4, epochs=1)])
    first = trained(ft.adam(0.05, batch=4, epochs=EPOCHS))
    x, y = DATA.x, DATA.y
    order = sample_order(7, EPOCHS, 1, N, False)[0]
    theta, adam = flat(first.params), HandAdam(0.05)
    for t, at in enumerate(order.reshape(-1, 4)):
        theta = theta - adam(lambda p, at=at: flat(gradient(unflat(p), x[at], y[at])), theta, t)
    assert flat(two.params) == pytest.approx(theta, rel=1e-10)


def test_an_optimizer_that_returns_nan_is_a_run_that_diverged():
    def broken(params, batch, key):
        return {name: p * jnp.nan for name, p in params.items()}

    run = trained(ft.own_step(broken, batch=4, epochs=EPOCHS))
    assert run.status == "diverged"
    assert np.array_equal(flat(run.params), flat(START))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ft.adam(0.1, beta1=1.0, epochs=1), r"Adam's beta1 must lie in \[0, 1\)"),
        (lambda: ft.momentum(0.1, beta=-0.1, epochs=1), "Momentum's beta must lie in"),
        (lambda: ft.sgd(0.1, clip=0.0, epochs=1), "norm to clip at must be a finite number > 0"),
        (lambda: ft.sgd(0.1, surrogate=0.1, epochs=1), "change nothing without SAM"),
        (lambda: ft.sgd(0.1, decay=0.5, epochs=1), "A phase's decay is one of Cosine, Steps"),
        (lambda: ft.sgd(0.1, optimizer="adam", epochs=1), "A phase's optimizer is one of"),
        (lambda: ft.Steps((5, 2)), "in increasing order"),
        (lambda: ft.own_step(3, epochs=1), "A step is a function"),
        (lambda: ft.own_step(noisy, rho=0.1, epochs=1), "Your own step takes no rho"),
        (lambda: ft.optax(3, epochs=1), "has init and update"),
        (lambda: ft.own_step(noisy, batch=5, epochs=1).check(N), "not a multiple of the batch"),
        (lambda: ft.Step("unknown").function, "load the file that makes it first"),
    ],
)
def test_algorithms_that_make_no_sense_are_refused_in_one_sentence(make, sentence):
    with pytest.raises(ft.FlattestError, match=sentence):
        make()


def test_the_fused_engine_leaves_what_it_has_no_kernel_for():
    for name, (phase, _) in CASES.items():
        run = trained(msgspec.structs.replace(phase, epochs=1))
        assert run.backend == "jax", name
        assert run.reason


OPTAX = {
    "adam": (lambda o: o.adam(0.05), {}),
    "sam around adamw": (lambda o: o.adamw(0.05, weight_decay=0.1), {"rho": 0.1}),
    "nesterov": (lambda o: o.sgd(0.02, momentum=0.8, nesterov=True), {}),
    "schedule and clipping": (
        lambda o: o.chain(o.clip_by_global_norm(0.5), o.sgd(o.cosine_decay_schedule(0.1, 20))),
        {},
    ),
}


@pytest.mark.peer
@pytest.mark.parametrize("name", OPTAX)
def test_an_optax_transformation_steps_as_optax_does(name):
    optax = pytest.importorskip("optax")
    make, settings = OPTAX[name]
    phase = ft.optax(make(optax), batch=4, epochs=EPOCHS, **settings)
    transformation = make(optax)
    params = {name: jnp.asarray(p) for name, p in START.items()}
    state = transformation.init(params)
    for x, y in batches(phase):
        u = gradient(params, x, y)
        if phase.rho:
            norm = np.linalg.norm(flat(u))
            above = jax.tree.map(lambda p, g, norm=norm: p + 0.1 * g / norm, params, u)
            u = gradient(above, x, y)
        updates, state = transformation.update(u, state, params)
        params = optax.apply_updates(params, updates)
    found = flat(trained(phase).params)
    assert np.abs(found - flat(params)).max() <= 1e-10 * np.abs(found).max()


@pytest.mark.peer
def test_optax_transformations_are_told_apart_by_their_constants():
    optax = pytest.importorskip("optax")
    makes = [
        lambda: optax.adam(1e-3),
        lambda: optax.adam(2e-3),
        lambda: optax.adam(1e-3, b1=0.8),
        lambda: optax.sgd(1e-3),
        lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 20)),
        lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 21)),
        lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3)),
    ]
    sources = [ft.Optax.of(make()).source for make in makes]
    assert sources == [ft.Optax.of(make()).source for make in makes]
    assert len(set(sources)) == len(makes)


@pytest.mark.peer
def test_the_optimizers_are_pytorchs():
    torch = pytest.importorskip("torch")
    peers = {
        "adam, L2": lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.2),
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.2),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.8, weight_decay=0.1),
        "nesterov": lambda p: torch.optim.SGD(
            p, lr=0.02, momentum=0.8, nesterov=True, weight_decay=0.1
        ),
    }
    for name, make in peers.items():
        phase = CASES[name][0]
        theta = {name: torch.tensor(p, requires_grad=True) for name, p in START.items()}
        optimizer = make(list(theta.values()))
        for batch in batches(phase):
            x, y = map(torch.tensor, batch)
            optimizer.zero_grad()
            f = torch.relu(x @ theta["W1"].T + theta["b1"]) @ theta["W2"]
            ((f - y) ** 2).mean().backward()
            optimizer.step()
        expected = flat({name: p.detach().numpy() for name, p in theta.items()})
        found = flat(trained(phase).params)
        assert np.abs(found - expected).max() <= 1e-10 * np.abs(expected).max(), name
