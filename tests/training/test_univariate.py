"""The fused kernel for univariate gradient descent, and stability seen to happen at 2/η."""

import os
import subprocess
import sys

import numpy as np
import pytest

from flattest.errors import FlattestError
from flattest.problem.data import Dataset
from flattest.problem.distributions import Univariate
from flattest.problem.models import MLP
from flattest.stability.dynamics import linearized_descent, top_eigenvector
from flattest.stability.functions import UnivariateNetwork
from flattest.stability.modes import (
    gram_top_eigenvalue,
    tangent_features,
    upper_top_eigenvalue,
)
from flattest.training.algorithms import Phase, StepChange, gd
from flattest.training.train import train
from flattest.training.univariate import descend
from support.places import SOURCE

MODEL = MLP(12, bias=True, output_bias=True)
DATA = Univariate(noise=0.3).draw(6, 0)


def plain_descent(params, data, rates, change=None):
    """θ_0, θ_1, … of gradient descent with these step sizes, through tangent features."""
    theta = UnivariateNetwork.of(params).theta
    path = [theta]
    factor = 1.0
    for step, rate in enumerate(rates):
        network = UnivariateNetwork.from_theta(theta)
        residual = network(data.x[:, 0]) - data.y
        if change and step and np.mean(residual**2) / 2 < change.below:
            factor = change.factor
        gradient = tangent_features(network, data.x[:, 0]) @ residual / data.n
        theta = theta - factor * rate * gradient
        path.append(theta)
    return np.array(path)


def loss_at(theta, data):
    return np.mean((UnivariateNetwork.from_theta(theta)(data.x[:, 0]) - data.y) ** 2) / 2


def test_the_kernel_follows_plain_gradient_descent_step_by_step():
    params = MODEL.init(1, 0)
    found = descend(params, DATA, [gd(0.05, steps=40), gd(0.2, steps=40)], marks=range(41))
    for run, lr in enumerate((0.05, 0.2)):
        path = plain_descent(params, DATA, [lr] * 40)
        np.testing.assert_allclose(found.trace_theta[run], path, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.theta[run], path[-1], rtol=1e-9, atol=1e-12)
        losses = [loss_at(theta, DATA) for theta in path]
        np.testing.assert_allclose(found.trace_loss[run], losses, rtol=1e-9)
    assert found.status == ("exhausted", "exhausted")
    assert found.steps.tolist() == [40, 40]


def test_warmup_grows_the_step_linearly():
    params = MODEL.init(1, 1)
    found = descend(params, DATA, [gd(0.1, steps=30, warmup=10)])
    rates = [0.1 * min(1, (t + 1) / 10) for t in range(30)]
    np.testing.assert_allclose(found.theta[0], plain_descent(params, DATA, rates)[-1], rtol=1e-9)


def test_the_step_changes_once_the_loss_is_small():
    params = MODEL.init(1, 2)
    change = StepChange(below=0.9 * loss_at(UnivariateNetwork.of(params).theta, DATA), factor=3.0)
    found = descend(params, DATA, [gd(0.05, steps=60, step_change=change)])
    path = plain_descent(params, DATA, [0.05] * 60, change)
    unchanged = plain_descent(params, DATA, [0.05] * 60)
    np.testing.assert_allclose(found.theta[0], path[-1], rtol=1e-9)
    assert np.abs(path[-1] - unchanged[-1]).max() > 1e-3


def test_a_run_stops_at_the_first_loss_below_the_threshold():
    params = MODEL.init(1, 0)
    losses = [loss_at(theta, DATA) for theta in plain_descent(params, DATA, [0.1] * 200)]
    first = next(t for t, value in enumerate(losses) if t and value <= 0.02)
    found = descend(params, DATA, [gd(0.1, steps=200, stop_loss=0.02)], marks=[first, first + 1])
    assert found.status == ("converged",)
    assert found.converged.all()
    assert found.steps[0] == first
    assert found.loss[0] == pytest.approx(losses[first], rel=1e-9)
    assert np.isnan(found.trace_loss[0, 1])
    assert found.in_warmup.tolist() == [False]


def test_a_settled_run_has_stayed_below_the_threshold():
    phase = gd(0.1, steps=400, stop_loss=0.02)
    at_once = descend(MODEL.init(1, 0), DATA, [phase])
    settled = descend(MODEL.init(1, 0), DATA, [phase], settle=50, marks=range(401))
    assert settled.steps[0] == at_once.steps[0] + 50
    assert (settled.trace_loss[0, at_once.steps[0] : settled.steps[0] + 1] <= 0.02).all()
    assert descend(MODEL.init(1, 0), DATA, [phase], settle=400).status == ("exhausted",)


def test_descent_does_not_settle_at_an_unstable_minimum():
    network, data = random_minimum(0)
    lr = 1.05 * 2 / upper_top_eigenvalue(network, data).value
    start = UnivariateNetwork.from_theta(network.theta + 1e-6)
    phase = gd(lr, steps=1000, stop_loss=1e-8)
    at_once = descend(start, data, [phase])
    settled = descend(start, data, [phase], settle=500, marks=range(1001))
    assert at_once.steps[0] == 1
    assert np.nanmax(settled.trace_loss) > 1e-6


def test_divergence_is_a_status():
    found = descend(MODEL.init(1, 0), DATA, [gd(50.0, steps=10_000), gd(0.01, steps=5)])
    assert found.status == ("diverged", "exhausted")
    assert found.steps[0] < 10_000


def test_runs_do_not_depend_on_the_number_of_threads():
    phases = [gd(lr, steps=300, stop_loss=1e-3) for lr in np.geomspace(0.01, 0.5, 7)]
    one = descend(MODEL.init(1, 0), DATA, phases, threads=1)
    three = descend(MODEL.init(1, 0), DATA, phases, threads=3)
    np.testing.assert_array_equal(one.theta, three.theta)


def test_settings_the_kernel_does_not_have_are_refused():
    for phase in (Phase(lr=0.1, steps=6), gd(0.1, steps=1, weight_decay=0.1)):
        with pytest.raises(FlattestError, match="full batches"):
            descend(MODEL.init(1, 0), DATA, [phase])


def random_minimum(seed, width=8, n=6):
    """A random network with the data it interpolates; no knot within 0.02 of an input."""
    rng = np.random.default_rng(seed)
    x = (np.arange(n) + rng.uniform(-0.3, 0.3, n)) * 2 / n - 1
    while True:
        w1, b1, w2 = rng.normal(size=(3, width))
        network = UnivariateNetwork(w1, b1, w2, 0.0)
        if np.abs(network.preactivations(x)).min() > 0.02:
            return network, Dataset(x[:, None], network(x))


@pytest.mark.parametrize("seed", range(40))
def test_gradient_descent_leaves_a_minimum_above_two_over_eta_and_stays_below(seed):
    network, data = random_minimum(seed)
    top = upper_top_eigenvalue(network, data).value
    rng = np.random.default_rng(seed)
    push = rng.normal(size=network.theta.size)
    start = UnivariateNetwork.from_theta(network.theta + 1e-6 * push / np.linalg.norm(push))
    # λ_max = 1.02 · 2/η and 0.98 · 2/η.
    phases = [gd(1.02 * 2 / top, steps=1000), gd(0.98 * 2 / top, steps=1000)]
    found = descend(start, data, phases, marks=range(0, 1001, 10), threads=1)
    distance = np.linalg.norm(found.trace_theta - network.theta, axis=2)
    assert distance[0].max() > 1e-4
    assert distance[1].max() <= 1e-6 * (1 + 1e-3)


def test_the_linearized_dynamics_are_gradient_descent_close_to_a_minimum():
    network, data = random_minimum(3)
    top = upper_top_eigenvalue(network, data).value
    offset = 1e-7 * np.random.default_rng(0).normal(size=network.theta.size)
    start = UnivariateNetwork.from_theta(network.theta + offset)
    found = descend(start, data, [gd(1.5 / top, steps=50)], marks=range(51))
    path = linearized_descent(network, data.x[:, 0], offset, 1.5 / top, [np.arange(6)] * 50)
    np.testing.assert_allclose(found.trace_theta[0] - network.theta, path, rtol=0, atol=1e-12)


def test_the_mean_of_sgd_follows_the_full_hessian():
    """(S3): E[θ_t − θ*] = (I − ηH)^t (θ_0 − θ*), over all batches of two, twice."""
    network, data = random_minimum(5, width=3, n=4)
    x = data.x[:, 0]
    features = tangent_features(network, x)
    offset = top_eigenvector(features)
    lr = 2.1 / gram_top_eigenvalue(features)
    pairs = [np.array([i, j]) for i in range(4) for j in range(i)]
    ends = [linearized_descent(network, x, offset, lr, [a, b])[-1] for a in pairs for b in pairs]
    np.testing.assert_allclose(np.mean(ends, axis=0), 1.1**2 * offset, atol=1e-12)


def test_the_reference_engine_takes_the_same_steps():
    """One phase with warm-up, a change of step and a loss to stop at, against the JAX engine."""
    params = MODEL.init(1, 0)
    change = StepChange(below=0.04, factor=2.0)
    phase = gd(0.08, steps=400, warmup=20, step_change=change, stop_loss=0.02)
    found = descend(params, DATA, [phase])
    run = train(MODEL, DATA, [phase], loss="half_mse", backend="jax", dtype="float64", test_size=10)
    assert found.status == ("converged",)
    assert run.step == found.steps[0]
    np.testing.assert_allclose(UnivariateNetwork.of(run.params).theta, found.theta[0], rtol=1e-9)


DESCENT = """
from hashlib import blake2b
import numpy as np
from flattest.problem.distributions import Univariate
from flattest.problem.models import MLP
from flattest.training.algorithms import gd
from flattest.training.univariate import descend, watch
data, model = Univariate(noise=0.3).draw(10, 0), MLP(21, bias=True, output_bias=True)
found = descend(model.init(1, 0), data, [gd(0.3, steps=3000)], threads=1)
crossed = watch(found.network(0), data, 0.3, 50).crossed
print(blake2b(found.theta.tobytes() + crossed.tobytes(), digest_size=8).hexdigest())
"""


@pytest.mark.slow
def test_descent_has_the_same_bits_on_every_kind_of_processor(tmp_path):
    """One without fused multiply-adds, one with vectors of 32 bytes, and this one."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "NUMBA_CACHE_DIR": str(tmp_path)}
    kinds = [{}, *({"NUMBA_CPU_NAME": k, "NUMBA_CPU_FEATURES": ""} for k in ("x86-64", "haswell"))]
    bits = {
        subprocess.run(
            [sys.executable, "-c", DESCENT],
            env=environment | kind,
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        ).stdout
        for kind in kinds
    }
    assert len(bits) == 1
