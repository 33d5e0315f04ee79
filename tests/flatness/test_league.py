"""The league of measures, each against its definition written out for a dense ∇²L."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import flattest as ft
from flattest.curvature.sharpness import operator_of
from flattest.flatness.ascent import rise
from flattest.flatness.league_measures import LeagueSettings, Subject, normalized
from support import cases, jets

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")
SETTINGS = LeagueSettings(lr=0.1, steps=10, draws=8, m=2)


def dense(model, params, data, loss):
    """∇²L, J and ℓ″/n, in the order of `model.shapes`."""
    f = jets.outputs(model, params, data.x)
    return (
        jets.hessian(f, data, loss),
        f.gradient,
        ft.loss(loss).curvature(f.value, data.y) / data.n,
    )


def flat(model, params, data):
    return np.concatenate([np.ravel(params[name]) for name in model.shapes(data.d)])


CASES = [("bias", "relu", "mse"), ("depth3", "softplus", "logistic")]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(case), scope="module")
def case(request):
    architecture, activation, loss = request.param
    model, data = cases.model(architecture, activation), cases.data()
    params = cases.params(model, data)
    # The units of softplus cannot be rescaled, so that its layers are not told from them.
    settings = replace(SETTINGS, layer=None if activation == "relu" else f"W{model.depth}")
    found = ft.league(model, params, data, loss, settings=settings)
    return model, params, data, loss, found


def test_what_is_a_function_of_the_hessian_is_that_of_the_dense_one(case):
    model, params, data, loss, found = case
    H, J, w = dense(model, params, data, loss)
    theta, values = flat(model, params, data), np.linalg.eigvalsh(H)[::-1]
    assert found["trace"] == pytest.approx(np.trace(H), rel=1e-9)
    assert found["gauss_newton_trace"] == pytest.approx(w @ (J**2).sum(axis=1), rel=1e-9)
    assert found["fisher_rao"] == pytest.approx(w @ (J @ theta) ** 2, rel=1e-8)
    assert found["top_eigenvalue"] == pytest.approx(values[0], rel=1e-8)
    assert found["top_eigenvalues"] == pytest.approx(values[:5].sum(), rel=1e-8)
    assert found["edge"] == pytest.approx(0.05 * values[0], rel=1e-8)
    spectrum = found.values["spectrum"]
    assert abs(spectrum.value - np.sqrt(np.mean(values**2))) <= 5 * spectrum.stderr
    half = found.settings.adaptive_rho**2 / 2
    assert found["adaptive_average"] == pytest.approx(half * theta**2 @ np.diag(H), rel=1e-9)


def test_relative_flatness_is_petzkas_sum_over_pairs_of_outputs(case):
    """With one output it is ‖w‖² Tr H of the last layer."""
    model, params, data, loss, found = case
    H, *_ = dense(model, params, data, loss)
    last = model.width
    assert found["relative_flatness"] == pytest.approx(
        np.sum(params[f"W{model.depth}"] ** 2) * np.trace(H[-last:, -last:]), rel=1e-8
    )


def test_the_gradient_is_that_of_differences(case):
    model, params, data, loss, found = case
    op = operator_of(model, params, data, loss)
    theta, step = op.point(), 1e-6
    slopes = [
        (op.loss_at(theta + step * e) - op.loss_at(theta - step * e)) / (2 * step)
        for e in np.eye(op.size)
    ]
    assert op.gradient_at(theta) == pytest.approx(slopes, abs=1e-7)
    assert found["gradient_norm"] == pytest.approx(np.linalg.norm(slopes), abs=1e-6)


def test_batch_sharpness_is_the_mean_of_the_batches_rayleigh_quotients(case):
    model, params, data, loss, found = case
    op = operator_of(model, params, data, loss)
    subject = Subject(op, SETTINGS)
    quotients = []
    for part in subject.batches():
        H = part.matmat(np.eye(op.size))
        g = part.gradient_at(op.point())
        quotients.append(g @ H @ g / (g @ g))
    assert found["batch_sharpness"] == pytest.approx(np.mean(quotients), rel=1e-9)


def test_a_part_of_the_samples_has_the_loss_of_those_samples(case):
    model, params, data, loss, _ = case
    rows = np.array([0, 2, 3])
    op = operator_of(model, params, data, loss)
    part = op.part(rows)
    few = ft.Dataset(data.x[rows], data.y[rows])
    alone = operator_of(model, params, few, loss)
    assert part.mean_loss() == pytest.approx(alone.mean_loss(), rel=1e-12)
    assert part.gradient_at(op.point()) == pytest.approx(alone.gradient_at(op.point()), rel=1e-9)
    eye = np.eye(op.size)
    assert part.matmat(eye) == pytest.approx(alone.matmat(eye), rel=1e-9, abs=1e-12)


def test_parts_of_a_batch_normalized_network_keep_the_statistics_of_all():
    model, data = cases.model("sim_bn", "softplus"), cases.data()
    op = operator_of(model, cases.params(model, data), data)
    halves = [op.part(rows) for rows in (np.arange(data.n // 2), np.arange(data.n // 2, data.n))]
    sizes = np.array([half.samples for half in halves]) / data.n
    losses = [half.mean_loss() for half in halves]
    assert sizes @ losses == pytest.approx(op.mean_loss(), rel=1e-12)
    gradients = np.array([half.gradient_at(op.point()) for half in halves])
    assert sizes @ gradients == pytest.approx(op.gradient_at(op.point()), rel=1e-9, abs=1e-12)


def test_minimum_sharpness_is_ibayashis_formula_without_biases():
    model, data = ft.MLP(5, depth=3), cases.data()
    params = cases.params(model, data)
    found = ft.league(model, params, data, only=["trace", "minimum_sharpness", "least_trace"])
    traces = [*found.values["trace"].per_layer.values()]
    assert found["minimum_sharpness"] == pytest.approx(3 * np.prod(traces) ** (1 / 3), rel=1e-9)
    assert found["least_trace"] < found["minimum_sharpness"] < found["trace"]


def test_normalized_sharpness_is_what_an_optimizer_finds():
    rng = np.random.default_rng(0)
    W, H = rng.normal(size=(3, 4)), rng.exponential(size=(3, 4))
    found = normalized({"W": W}, {"W": H})

    def value(t):
        scale = np.exp(t[:3, None] + t[3:])
        return (H * scale + W**2 / scale).sum()

    least = min(minimize(value, rng.normal(size=7), tol=1e-12).fun for _ in range(3))
    assert found.value == pytest.approx(least, rel=1e-6)
    assert found.lower_bound <= least * (1 + 1e-12)
    assert found.gap < 1e-8
    assert normalized({"W": W}, {"W": 1.01 * H}).value > found.value


def linear_case():
    """f = w · x: L is quadratic, and all that noise and balls do to it is known."""
    data = ft.Dataset(np.random.default_rng(0).normal(size=(12, 3)), np.zeros(12))
    return (lambda p, x: x @ p["w"]), {"w": np.array([1.0, -2.0, 0.5])}, data


def test_a_balls_maximum_is_reached_where_the_loss_is_quadratic():
    function, params, data = linear_case()
    op = operator_of(function, params, data)
    H, g, rho = 2 * data.x.T @ data.x / 12, op.gradient_at(op.point()), 0.3
    # The largest of a quadratic on a sphere: (μ − H) δ = g with μ > λ_max and ‖δ‖ = ρ.
    values, vectors = np.linalg.eigh(H)
    low, high = values[-1] + 1e-12, values[-1] + np.linalg.norm(g) / rho
    for _ in range(200):
        mu = (low + high) / 2
        low, high = (
            (mu, high) if np.linalg.norm((vectors.T @ g) / (mu - values)) > rho else (low, mu)
        )
    delta = vectors @ ((vectors.T @ g) / (mu - values))
    best = g @ delta + delta @ H @ delta / 2
    assert rise(op, rho, 50, 0) == pytest.approx(best, rel=1e-6)
    assert rise(op, rho, 1, 0) <= best * (1 + 1e-12)


def test_no_point_of_the_ball_that_ascent_visits_is_outside():
    """The lower bound of a small ball is at most that of a large one."""
    model, data = cases.model("bias", "relu"), cases.data()
    op = operator_of(model, cases.params(model, data), data)
    found = [rise(op, rho, 10, 0) for rho in (0.0001, 0.01, 0.1)]
    assert 0 < found[0] < found[1] < found[2]


def test_m_sharpness_of_one_batch_is_the_balls():
    model, data = cases.model("bias", "relu"), cases.data()
    settings = LeagueSettings(m=data.n, steps=5)
    names = ["ball_sharpness", "m_sharpness"]
    found = ft.league(model, cases.params(model, data), data, only=names, settings=settings)
    assert found["m_sharpness"] == pytest.approx(found["ball_sharpness"], rel=1e-12)


def test_noise_raises_a_quadratic_loss_by_half_its_trace():
    """E L(w + σz) − L = (σ²/2) Tr ∇²L, and (σ²/2) Σ w² H_ww for noise in units of w."""
    function, params, data = linear_case()
    settings = LeagueSettings(draws=100)
    names = ["trace", "pac_bayes", "pac_bayes_magnitude", "adaptive_average"]
    found = ft.league(function, params, data, only=names, settings=settings)
    plain, magnitude = found.values["pac_bayes"], found.values["pac_bayes_magnitude"]
    assert abs(plain.value - found["trace"] / 0.2) <= 4 * plain.stderr
    scaled = found["adaptive_average"] / (settings.adaptive_rho**2 / 2) / 0.2
    assert abs(magnitude.value - scaled) <= 4 * magnitude.stderr


def test_a_memorizer_and_a_generalizer_of_one_trace_differ_in_other_measures():
    data = ft.xor(n=20, d=6, distinct=True)
    names = ["least_trace", "top_eigenvalue", "normalized_sharpness", "batch_sharpness"]
    one, two = (
        ft.league(net.model, net.params, data, only=names)
        for net in (ft.memorizer(data), ft.xor_generalizer(data))
    )
    assert one["least_trace"] == pytest.approx(two["least_trace"], rel=1e-9)
    assert one["top_eigenvalue"] < two["top_eigenvalue"]
    assert one["normalized_sharpness"] > two["normalized_sharpness"]
    with pytest.raises(
        ft.FlattestError, match="There is no batch_sharpness: every batch's gradient"
    ):
        one["batch_sharpness"]


def test_a_league_prints_and_is_json(case):
    *_, found = case
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines] == list(ft.MEASURES)
    assert "lower bound: ascent, 10 steps" in str(found)
    values = json.loads(found.json())["values"]
    assert values["trace"]["value"] == found["trace"]


def test_what_cannot_be_asked_is_refused():
    function, params, data = linear_case()
    with pytest.raises(ft.FlattestError, match="measure"):
        ft.league(function, params, data, only=["sharpness"])
    with pytest.raises(ft.FlattestError, match="rho must be positive"):
        LeagueSettings(rho=0)
    with pytest.raises(ft.FlattestError, match="layer"):
        ft.league(
            function,
            params,
            data,
            only=["relative_flatness"],
            settings=LeagueSettings(layer="nope"),
        )
    found = ft.league(function, params, data, only=["edge"])
    assert "lr=" in found.missing["edge"]


@pytest.mark.peer
@pytest.mark.parametrize("activation", ["relu", "softplus"])
def test_a_module_has_the_league_of_its_twin_and_stays_as_it_was(activation):
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from support.twins import twin
    from support.untouched import assert_untouched, snapshot

    model, data = cases.model("depth3", activation), cases.data()
    params = cases.params(model, data)
    module = twin(model, params)
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    before = snapshot(module)
    one = ft.league(model, params, data, settings=SETTINGS)
    two = ft.torch.league(module, data, settings=SETTINGS)
    assert_untouched(before, module)
    assert set(one.values) == set(two.values)
    # Random vectors meet other orders of the parameters.
    drawn = {"spectrum", "pac_bayes", "pac_bayes_magnitude"}
    ascended = {"ball_sharpness", "m_sharpness", "adaptive_worst"}
    for name in set(one.values) - drawn - ascended:
        assert two[name] == pytest.approx(one[name], rel=1e-7), name
    for name in ascended:
        assert two[name] == pytest.approx(one[name], rel=0.05), name
    for name in drawn:
        errors = one.values[name].stderr + two.values[name].stderr
        assert abs(one[name] - two[name]) <= 4 * errors, name
