"""Flows of the sharpness: known answers, order, outputs on their targets, resumption, refusals."""

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from scipy.optimize import linprog

import flattest as ft
from flattest.curvature.sharpness import trace
from flattest.errors import FlattestError
from flattest.problem.losses import interpolates
from flattest.training import flow_engine
from flattest.training.flows import Flow
from flattest.training.manifold import Dense, Factored, TwoLayers, _dense, manifold
from flattest.training.state import Problem, State

ONE_POINT = ft.Dataset(np.ones((1, 1)), np.ones(1))
# f = uv x on (1, 1): M is a hyperbola, S = 2(u² + v²), and (u² − v²) decays like e^{−8t} on it.
HYPERBOLA = ft.FunctionModel(
    lambda p, x: x[:, 0] * p["u"] * p["v"],
    lambda d, seed: {"u": np.array(3.0), "v": np.array(1 / 3)},
)


def start_of(model, data, loss=None):
    return Problem(model, data, loss or ft.MSE(), 0), State(
        model.init(data.d, 0), tally=dict(flow_engine.NOTHING_YET)
    )


def difference(params):
    return float(params["u"] ** 2 - params["v"] ** 2)


def test_on_a_hyperbola_the_flow_is_the_known_one():
    phase = ft.flow(0.5, epochs=4, tolerance=1e-9)
    problem, state = start_of(HYPERBOLA, ONE_POINT)
    before = difference(state.params)
    for epoch in range(1, 5):
        state = flow_engine.advance(problem, phase, state, 1)
        exact = before * np.exp(-8 * 0.125 * epoch)
        assert difference(state.params) == pytest.approx(exact, rel=1e-6)
        assert state.params["u"] * state.params["v"] == pytest.approx(1, abs=1e-11)


def test_the_flow_ends_at_the_flattest_interpolator_with_a_certificate():
    run = ft.train(HYPERBOLA, ONE_POINT, ft.flow(50.0), dtype="float64", log=ft.Log(points=5))
    assert run["time"][-1] < 50
    assert run["stationarity"][-1] <= 1e-6
    assert run.params["u"] == pytest.approx(1, abs=1e-6)


def test_a_flow_that_stalls_is_a_recorded_result():
    flow = ft.flow(1.0, tolerance=1e-300)
    run = ft.train(HYPERBOLA, ONE_POINT, flow, dtype="float64", log=ft.Log(points=2))
    assert run.status == "stagnated"
    assert run.sentence == "The flow stalled at time 0: no step was small enough."
    assert run["time"][-1] == 0


def error_of(steps, time=0.25):
    """Of so many equal steps on the hyperbola."""
    problem, state = start_of(HYPERBOLA, ONE_POINT)
    where = manifold(problem, ft.flow(time))
    point = where.at(where.flat(state.params))
    before = difference(state.params)
    for _ in range(steps):
        point = flow_engine._step(where, point, time / steps, np.inf).end
    return abs(difference(where.named(point.theta)) - before * np.exp(-8 * time))


def test_the_order_in_the_step_is_three():
    errors = [error_of(steps) for steps in (20, 40, 80)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert orders == pytest.approx([3, 3], abs=0.3)


@pytest.mark.slow
def test_a_diagonal_linear_network_ends_at_the_weighted_l1_interpolator():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 6)) * np.array([1, 1, 1, 0.5, 2, 1])
    data = ft.Dataset(x, x @ np.array([1.0, 0, 0, 0, -0.7, 0]) + 0.1)
    model = ft.FunctionModel(
        lambda p, x: x @ (p["u"] ** 2 - p["v"] ** 2),
        lambda d, seed: {"u": np.full(d, 0.6), "v": np.full(d, 0.6)},
    )
    cost = (x**2).sum(axis=0)
    program = linprog(np.r_[cost, cost], A_eq=np.hstack([x, -x]), b_eq=data.y)
    beta = np.linalg.pinv(x) @ data.y
    root = np.sqrt(0.5 + 0.25 * beta**2)
    start = {"u": np.sqrt(root + beta / 2), "v": np.sqrt(root - beta / 2)}
    run = ft.train(
        *(model, data, ft.flow(300.0, epochs=30, stationary=1e-9)),
        params=start,
        dtype="float64",
        log=ft.Log(points=3, measures=("training",)),
    )
    found = run.params["u"] ** 2 - run.params["v"] ** 2
    assert np.abs(found - (program.x[:6] - program.x[6:])).max() < 1e-6


NETWORKS = {
    "relu": ft.MLP(9, bias=True),
    "output bias": ft.MLP(9, bias=True, output_bias=True),
    "leaky": ft.MLP(9, activation="leaky_relu:0.2"),
    "gelu": ft.MLP(9, bias=True, activation="gelu"),
    "three layers": ft.MLP(9, bias=True, depth=3),
    "four layers": ft.MLP(7, depth=4, activation="gelu", output_bias=True),
    "sim_bn": ft.MLP(9, bias=True, norm="sim_bn"),
    "sim_bn, gelu": ft.MLP(9, norm="sim_bn", activation="gelu", output_bias=True),
    "sim_ln": ft.MLP(9, bias=True, norm="sim_ln"),
    "sim_ln, gelu": ft.MLP(9, norm="sim_ln", activation="gelu"),
}
SEEN = ("relu", "three layers", "sim_bn", "sim_ln")


def both_ways(name, kinks, seed):
    """The manifold in closed forms and with J held whole, and the parameters of a network."""
    model, data = NETWORKS[name], ft.xor(5, 4, seed=2)
    problem, params = Problem(model, data, ft.MSE(), 0), model.init(4, seed)
    fast = manifold(problem, ft.flow(1.0, kinks=kinks, width=0.3))
    smooth = msgspec.structs.replace(model, activation="softplus:0.3")
    seen = smooth if kinks == "seen" else model
    return fast, _dense(model, data.x, fast.target, np.full(5, 2 / 5), seen), params


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("name", "kinks"), [*((n, "unseen") for n in NETWORKS), *((n, "seen") for n in SEEN)]
)
def test_the_closed_forms_are_those_of_autodiff(name, kinks, seed):
    fast, slow, params = both_ways(name, kinks, seed)
    p, q = fast.at(fast.flat(params)), slow.at(slow.flat(params))
    plain = NETWORKS[name].norm is None and NETWORKS[name].depth == 2
    assert isinstance(p, TwoLayers if plain else Factored)
    assert isinstance(q, Dense)
    rng, c = np.random.default_rng(1), np.arange(5.0)
    direction = {k: rng.normal(size=np.shape(v)) for k, v in params.items()}
    for a, b in (
        (p.f, q.f),
        (p.gram, q.gram),
        (p.sharpness, q.sharpness),
        (p.push(fast.flat(direction)), q.push(slow.flat(direction))),
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    for a, b in ((p.gradient, q.gradient), (p.pull(c), q.pull(c)), (p.velocity, q.velocity)):
        a, b = fast.named(a), slow.named(b)
        for key in a:
            np.testing.assert_allclose(a[key], b[key], rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", ["three layers", "sim_bn", "sim_ln"])
def test_a_millionth_more_of_one_weight_is_told_apart(name):
    fast, slow, params = both_ways(name, "unseen", 0)
    moved = params | {"W1": params["W1"] * np.where(np.arange(9) == 3, 1 + 1e-6, 1)[:, None]}
    p, q = fast.at(fast.flat(moved)), slow.at(slow.flat(params))
    a, b = fast.named(p.gradient), slow.named(q.gradient)
    assert max(np.abs(a[key] - b[key]).max() for key in a) > 1e-9


def test_a_neuron_of_sim_bn_that_is_off_everywhere_has_no_gradient():
    fast, slow, params = both_ways("sim_bn", "unseen", 0)
    params = params | {"W1": params["W1"].copy(), "b1": params["b1"].copy()}
    params["W1"][2], params["b1"][2] = 0.0, -1.0
    p, q = fast.at(fast.flat(params)), slow.at(slow.flat(params))
    assert p.sharpness == pytest.approx(q.sharpness, rel=1e-12)
    a, b = fast.named(p.gradient), slow.named(q.gradient)
    for key in a:
        np.testing.assert_allclose(a[key], b[key], atol=1e-11)


def interpolator(model, data, loss="mse", stop=1e-8):
    log = ft.Log(points=1, measures=("training",))
    phase = ft.gd(0.05, epochs=20_000, stop_loss=stop + ft.loss(loss).floor(data.y).mean())
    return ft.train(model, data, phase, dtype="float64", loss=loss, log=log, backend="fused").params


@pytest.mark.parametrize("kinks", ["unseen", "seen", "walls"])
def test_outputs_stay_on_their_targets_and_the_trace_rises_at_kinks_only(kinks):
    model, data = ft.MLP(30, bias=True), ft.xor(8, 6, seed=1)
    problem = Problem(model, data, ft.MSE(), 0)
    phase = ft.flow(0.6, kinks=kinks, width=0.1)
    where = flow_engine.interpolators(problem, phase)
    point = flow_engine.begin(problem, phase, State(interpolator(model, data)))
    start, crossings = point, 0.0
    for step in flow_engine.steps(where, phase, point, phase.time):
        assert interpolates(step.end.f, data.y)
        crossings += step.crossings
        if kinks != "unseen" or step.crossings == 0:
            assert step.rise <= 1e-9 * step.start.sharpness
        point = step.end
    assert crossings > 0
    assert point.sharpness < 0.8 * start.sharpness
    if kinks != "seen":
        exact = float(trace(model, where.named(point.theta), data))
        assert point.sharpness == pytest.approx(exact, rel=1e-9)


@pytest.mark.slow
def test_any_network_and_loss_flows():
    data = ft.xor(6, 8, seed=1)
    for model, loss in (
        (ft.MLP(8, depth=3, bias=True), "mse"),
        (ft.MLP(8, bias=True, norm="sim_bn"), "mse"),
        (ft.MLP(12, bias=True, norm="sim_ln"), "logistic"),
    ):
        start = interpolator(model, data, loss, 1e-6)
        run = ft.train(
            *(model, data, ft.flow(0.1, epochs=2)),
            params=start,
            dtype="float64",
            loss=loss,
            log=ft.Log(points=2, measures=("training", "sharpness")),
        )
        assert run.status == "finished"
        assert run["sharpness"][-1] < run["sharpness"][0]
        f = ft.predict(model, run.params, data.x, data.x)
        assert interpolates(f, ft.loss(loss).target(data.y))


@pytest.mark.parametrize("kinks", ["unseen", "walls"])
def test_a_flow_that_is_cut_has_the_same_bits(tmp_path, kinks):
    model, data = ft.MLP(20, bias=True), ft.xor(6, 8, seed=1)
    start = interpolator(model, data)
    problem, phase = Problem(model, data, ft.MSE(), 0), ft.flow(0.3, epochs=6, kinks=kinks)
    state = State(start, tally=dict(flow_engine.NOTHING_YET))
    whole, cut = flow_engine.advance(problem, phase, state, 6), state
    for epochs in (1, 3, 2):
        cut = flow_engine.advance(problem, phase, cut, epochs)
    assert all((whole.params[key] == cut.params[key]).all() for key in start)
    assert whole.tally == cut.tally

    class Interrupted(Exception):
        pass

    def interrupt(progress):
        if 0 < progress.fraction < 1:
            raise Interrupted

    settings = {
        "params": start,
        "dtype": "float64",
        "checkpoint": tmp_path,
        "checkpoint_seconds": 0,
        "log": ft.Log(points=2, measures=("training",)),
    }
    with pytest.raises(Interrupted):
        ft.train(model, data, phase, progress=interrupt, progress_seconds=0, **settings)
    resumed = ft.train(model, data, phase, **settings)
    assert all((whole.params[key] == resumed.params[key]).all() for key in start)
    assert resumed["crossings"][-1] == whole.tally["crossings"]
    for name in flow_engine.CROSSINGS:
        assert (resumed[name] == whole.events[name]).all()
    assert resumed["crossing_count"].sum() == resumed["crossings"][-1] > 0
    assert resumed["crossing_jump"].clip(min=0).sum() == pytest.approx(resumed["jump_up"][-1])


def test_a_flow_after_a_descent_begins_half_way_and_goes_by_its_time():
    """By epochs it would begin at 5000 of 5004."""
    seen = []

    def see(progress):
        seen.append((progress.fraction, "time" in progress.series and progress.series["time"][-1]))

    ft.train(
        *(ft.MLP(20, bias=True), ft.xor(6, 8, seed=1)),
        (ft.gd(0.05, epochs=5000, stop_loss=1e-8), ft.flow(0.1, epochs=4)),
        dtype="float64",
        log=ft.Log(points=8, measures=("training",)),
        progress=see,
        progress_seconds=0,
    )
    flowing = [fraction for fraction, _ in seen if fraction >= 0.5]
    assert sorted(set(flowing)) == [0.5, 0.625, 0.75, 0.875, 1.0]
    assert seen[-1] == (1.0, pytest.approx(0.1))


def test_bad_starts_are_refused_in_a_sentence():
    model, data = ft.MLP(20, bias=True), ft.xor(6, 8, seed=1)
    flow = ft.flow(1.0)
    with pytest.raises(FlattestError, match=r"misses a target by .*train it first"):
        ft.train(model, data, flow, dtype="float64")
    with pytest.raises(FlattestError, match="followed in float64, not float32"):
        ft.train(model, data, flow)
    twins = ft.Dataset(np.ones((2, 4)), np.ones(2))
    with pytest.raises(FlattestError, match="linearly dependent"):
        ft.train(model, twins, flow, dtype="float64")
    with pytest.raises(FlattestError, match="no minimizer to flow along"):
        ft.train(model, data, flow, dtype="float64", loss=ft.Logistic(0.0))
    smooth = ft.MLP(20, activation="gelu")
    with pytest.raises(FlattestError, match="sees the kinks of MLPs with σ = relu only"):
        ft.train(smooth, data, ft.flow(1.0, kinks="seen"), dtype="float64")
    deep = ft.MLP(20, depth=3)
    with pytest.raises(FlattestError, match="Walls are for two layers without a norm"):
        ft.train(deep, data, ft.flow(1.0, kinks="walls"), dtype="float64")
    opposite = ft.Dataset(np.array([[1.0, 2.0], [-0.5, -1.0]]), np.ones(2))
    with pytest.raises(FlattestError, match="no two inputs may lie on one line through 0"):
        ft.train(ft.MLP(20), opposite, ft.flow(1.0, kinks="walls"), dtype="float64")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time": 0.0}, "flow's time must be a finite number > 0"),
        ({"width": -1.0}, "flow's width must be a finite number > 0"),
        ({"tolerance": float("nan")}, "flow's tolerance must be a finite number > 0"),
        ({"epochs": 0}, "epochs must be a positive integer"),
        ({"kinks": "felt"}, "valid are: seen, unseen, walls"),
    ],
)
def test_a_flow_that_makes_no_sense_is_refused_in_one_sentence(changes, message):
    with pytest.raises(FlattestError, match=message):
        Flow(**{"time": 1.0, **changes})


def test_phases_of_steps_and_flows_follow_one_another():
    model, data = ft.MLP(20, bias=True), ft.xor(6, 8, seed=1)
    phases = (ft.gd(0.05, epochs=5000, stop_loss=1e-8), ft.flow(0.2, epochs=4))
    log = ft.Log(points=8, measures=("training", "sharpness"))
    run = ft.train(model, data, phases, dtype="float64", log=log)
    assert run.backend == "fused"
    assert set(run["phase"]) == {0.0, 1.0}
    assert run["time"][-1] == pytest.approx(0.2)
    assert run["sharpness"][-1] < run["sharpness"][run["phase"] == 0][-1]


def test_softplus_of_a_width_is_the_scaled_softplus_and_near_0_relu():
    t = np.linspace(-3, 3, 101)
    wide, narrow = (ft.activation(f"softplus:{w}") for w in ("1.0", "1e-9"))
    assert np.allclose(wide.value(t), ft.activation("softplus").value(t), rtol=1e-14)
    assert np.allclose(narrow.value(t), np.maximum(t, 0), atol=1e-8)
    assert float(jnp.asarray(wide.slope(jnp.zeros(1)))[0]) == 0.5
