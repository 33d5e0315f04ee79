"""The SAM step against two implementations nobody here wrote: optax's and pytorch_optimizer's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flattest as ft
from flattest.training import fused, loop
from flattest.training.order import sample_order
from flattest.training.state import Problem, State
from support.reference import interpolate

pytestmark = pytest.mark.peer

N, D, EPOCHS = 10, 4, 12
DATA = ft.xor(N, D, seed=3)
NET = ft.MLP(width=20, bias=True)
PHASES = {
    "1-sam": ft.sam(0.01, 0.05, epochs=EPOCHS),
    "1-sam with decay": ft.sam(0.01, 0.05, epochs=EPOCHS, weight_decay=0.02),
    "sam": ft.sam(0.01, 0.05, batch=5, epochs=EPOCHS),
    "full batch": ft.sam(0.01, 0.05, batch=None, epochs=EPOCHS),
}


def near_interpolation():
    """Residuals of about 1e-8: the gradient nearly vanishes, its direction does not."""
    params = interpolate(NET, NET.init(D, seed=0), DATA)
    residual = ft.predict(NET, params, DATA.x, DATA.x) - DATA.y
    assert np.abs(residual).max() < 1e-12
    return params | {"W2": params["W2"] * (1 + 1e-8)}


STARTS = {"at the start": lambda: NET.init(D, seed=0), "near interpolation": near_interpolation}


def batches(phase):
    size = phase.batch or N
    for epoch in range(EPOCHS):
        order = sample_order(7, epoch, 1, N, False)[0] if phase.batch else np.arange(N)
        for start in range(0, N, size):
            points = order[start : start + size]
            yield DATA.x[points], DATA.y[points]


def optax_training(phase, params):
    optax = pytest.importorskip("optax")
    contrib = pytest.importorskip("optax.contrib")
    descent = optax.chain(optax.add_decayed_weights(phase.weight_decay), optax.sgd(phase.lr))
    ascent = optax.chain(contrib.normalize(), optax.sgd(phase.rho))
    optimizer = contrib.sam(descent, ascent, opaque_mode=True)

    @jax.jit
    def step(params, state, x, y):
        gradient = jax.grad(lambda p, _: jnp.mean((NET.apply(p, x) - y) ** 2))
        updates, state = optimizer.update(gradient(params, 0), state, params, grad_fn=gradient)
        return optax.apply_updates(params, updates), state

    params = {name: jnp.asarray(value) for name, value in params.items()}
    state = optimizer.init(params)
    for x, y in batches(phase):
        params, state = step(params, state, x, y)
    return params


def torch_training(phase, params):
    torch = pytest.importorskip("torch")
    sam = pytest.importorskip("pytorch_optimizer").SAM
    theta = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    optimizer = sam(
        list(theta.values()),
        torch.optim.SGD,
        rho=phase.rho,
        perturb_eps=0.0,
        lr=phase.lr,
        weight_decay=phase.weight_decay,
    )
    for batch in batches(phase):
        x, y = map(torch.tensor, batch)

        def closure(x=x, y=y):
            optimizer.zero_grad()
            f = torch.relu(x @ theta["W1"].T + theta["b1"]) @ theta["W2"]
            loss = ((f - y) ** 2).mean()
            loss.backward()
            return loss

        closure()
        optimizer.step(closure)
    return {name: value.detach().numpy() for name, value in theta.items()}


# pytorch_optimizer takes ‖g‖ in float32, so that its ε has a relative error of 6e-8.
PEERS = [(optax_training, 1e-10), (torch_training, 1e-8)]


@pytest.mark.parametrize(("peer", "tolerance"), PEERS, ids=["optax", "pytorch_optimizer"])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", PHASES)
def test_the_sam_step_is_that_of_others(name, start, peer, tolerance):
    phase, params = PHASES[name], STARTS[start]()
    expected = peer(phase, params)
    problem = Problem(NET, DATA, ft.MSE(), seed=7)
    for engine in (loop, fused):
        state = engine.advance(problem, phase, State(params), EPOCHS)
        for key, value in expected.items():
            assert np.abs(state.params[key] - value).max() < tolerance
            assert np.abs(params[key] - value).max() > 1e-4


def test_where_the_gradient_is_zero_both_engines_stay():
    """A dead network: the documented step perturbs by nothing, where 0/0 would be a NaN."""
    dead = NET.init(D, seed=0) | {"b1": np.full(20, -100.0)}
    phase = PHASES["1-sam"]
    problem = Problem(NET, DATA, ft.MSE(), seed=7)
    for engine in (loop, fused):
        state = engine.advance(problem, phase, State(dead), EPOCHS)
        assert state.halt is None
        assert all((state.params[name] == dead[name]).all() for name in dead)
