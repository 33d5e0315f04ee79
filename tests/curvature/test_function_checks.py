"""JAX functions whose derivatives are not those of their values, and trees that hold more than
parameters: refused in a sentence, or right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flattest as ft

relu, held = jax.nn.relu, jax.lax.stop_gradient


@jax.custom_vjp
def halved(x):
    return x * 1.0


halved.defvjp(lambda x: (x, None), lambda _, g: (g / 2,))


@jax.custom_jvp
def rounded(x):
    return jnp.round(x)


rounded.defjvps(lambda dx, _, x: dx)


@jax.custom_jvp
def squared(x):
    return x**2


squared.defjvps(lambda dx, _, x: 2 * dx * held(x))


def hidden(p, x):
    return x @ p["W"] + p["b"]


def case():
    rng = np.random.default_rng(0)
    params = {"W": rng.normal(size=(4, 5)), "b": rng.normal(size=5), "a": rng.normal(size=5)}
    return params, (rng.normal(size=(8, 4)), rng.normal(size=8))


REFUSED = {
    "a gradient halved": (lambda p, x: halved(relu(hidden(p, x))) @ p["a"], "first derivatives"),
    "straight through": (lambda p, x: rounded(hidden(p, x)) @ p["a"], "first derivatives"),
    "a weight held": (lambda p, x: relu(x @ p["W"] + held(p["b"])) @ p["a"], "first derivatives"),
    "a slope held": (lambda p, x: squared(hidden(p, x)) @ p["a"], "second derivatives"),
    "fewer digits": (
        lambda p, x: relu(hidden(p, x)).astype(jnp.float16) @ p["a"],
        "computes in float16",
    ),
    "fewer digits, compiled": (
        jax.jit(lambda p, x: relu(hidden(p, x).astype(jnp.float32)) @ p["a"]),
        "computes in float32",
    ),
    "two outputs": (lambda p, x: (relu(hidden(p, x)) @ p["a"], None), "not a tuple"),
    "middle samples that meet": (
        lambda p, x: (f := relu(hidden(p, x)) @ p["a"]).at[4:5].add(f[5:6] if len(x) > 6 else 0),
        "depends on the rest of its batch",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_the_derivative_of_its_values_is_refused(name):
    function, words = REFUSED[name]
    params, data = case()
    with pytest.raises(ft.FlattestError, match=words):
        ft.measure(function, params, data)


def test_a_loss_that_holds_a_part_of_itself_is_refused():
    params, data = case()
    with pytest.raises(ft.FlattestError, match="first derivatives"):
        ft.trace(
            lambda p, x: relu(hidden(p, x)) @ p["a"],
            params,
            data,
            lambda f, y: held(f[0] - y) * (f[0] - y),
        )


@pytest.mark.parametrize("measure", [ft.trace, ft.top_eigenvalue, ft.measure])
def test_a_loss_whose_second_derivative_alone_is_not_that_of_its_values_is_refused(measure):
    """Its slope is right, so that L and ∇L show nothing."""
    params, data = case()
    function = lambda p, x: relu(hidden(p, x)) @ p["a"]  # noqa: E731
    with pytest.raises(ft.FlattestError, match="second derivatives of this loss"):
        measure(function, params, data, lambda f, y: squared(f[0] - y))


def test_a_network_whose_second_derivative_alone_is_not_that_of_its_values_has_no_trace():
    params, data = case()
    with pytest.raises(ft.FlattestError, match="second derivatives of this function"):
        ft.trace(lambda p, x: squared(hidden(p, x)) @ p["a"], params, data)


def prices(p, x):
    """Expected prices and the logarithms of their variances."""
    h = x @ p["W"]
    return jnp.stack([3e5 + 1e5 * h[:, 0], 20 + 2 * h[:, 1]], 1)


SCALED = {
    "mean squared error of logarithms": (
        lambda p, x: jnp.exp(x @ p["W"]),
        lambda rng: np.exp(rng.normal(size=(40, 3))),
        lambda f, y: jnp.mean((jnp.log(f) - jnp.log(y)) ** 2),
    ),
    "Kullback–Leibler of probabilities": (
        lambda p, x: jax.nn.softmax(x @ p["W"]),
        lambda rng: rng.dirichlet(np.ones(3), 40),
        lambda f, y: jnp.sum(f * (jnp.log(f) - jnp.log(y))),
    ),
    "Gaussian likelihood of prices": (
        prices,
        lambda rng: 3e5 + 1e5 * rng.normal(size=40),
        lambda f, y: (f[1] + (y - f[0]) ** 2 * jnp.exp(-f[1])) / 2,
    ),
    "cross-entropy of labels that are certain": (
        lambda p, x: 20 * x @ p["W"],
        lambda rng: rng.integers(3, size=40),
        lambda f, y: -jax.nn.log_softmax(f)[y],
    ),
    "root beyond whose domain a few outputs are": (
        lambda p, x: 1 + 1e-5 * x @ p["W"],
        lambda rng: rng.normal(size=(40, 3)),
        lambda f, y: jnp.sum(jnp.sqrt(f - 0.9995) - y * f),
    ),
}


@pytest.mark.parametrize("name", SCALED)
def test_losses_of_positive_outputs_or_of_outputs_of_several_sizes_are_not_refused(name):
    """The trace is that of the Hessian of L that JAX forms."""
    function, targets, loss = SCALED[name]
    rng = np.random.default_rng(0)
    x, W, y = rng.normal(size=(40, 4)), 2 * rng.normal(size=(4, 3)), targets(rng)
    found = ft.trace(function, {"W": W}, (x, y), loss)
    mean = lambda w: jax.vmap(loss)(function({"W": w}, x), jnp.asarray(y)).mean()  # noqa: E731
    H = jax.hessian(lambda w: mean(w.reshape(4, 3)))(jnp.asarray(W.ravel()))
    assert found.value == pytest.approx(np.trace(H), rel=1e-9)


@pytest.mark.parametrize(
    "name", [name for name in SCALED if "logarithms" in name or "prices" in name]
)
def test_a_wrong_second_derivative_of_such_a_loss_is_refused(name):
    function, targets, _ = SCALED[name]
    rng = np.random.default_rng(0)
    losses = {
        "mean squared error of logarithms": lambda f, y: squared(jnp.log(f) - jnp.log(y)).mean(),
        "Gaussian likelihood of prices": lambda f, y: f[1] + squared(y - f[0]) * jnp.exp(-f[1]),
    }
    x, W, y = rng.normal(size=(40, 4)), 2 * rng.normal(size=(4, 3)), targets(rng)
    with pytest.raises(ft.FlattestError, match="second derivatives of this loss"):
        ft.trace(function, {"W": W}, (x, y), losses[name])


def test_a_refused_loss_is_told_how_far_off_it_is_and_nothing_of_functions():
    params, data = case()
    function = lambda p, x: relu(hidden(p, x)) @ p["a"]  # noqa: E731
    with pytest.raises(ft.FlattestError, match=r"off the differences of its first by 1 of") as told:
        ft.trace(function, params, data, lambda f, y: squared(f[0] - y))
    assert "closes over" not in str(told.value)


def test_losses_with_kinks_at_the_outputs_are_not_refused():
    """|f − y| at an interpolator, and a hinge at its corner."""
    params, (x, _) = case()
    function = lambda p, x: relu(hidden(p, x)) @ p["a"]  # noqa: E731
    y = np.asarray(function(params, x))
    assert ft.trace(function, params, (x, y), lambda f, y: jnp.abs(f[0] - y)).value == 0
    hinge = lambda f, y: jnp.maximum(0, 1 - y * f[0])  # noqa: E731
    assert ft.trace(function, params, (x, 1 / y), hinge).value == 0


def test_units_at_their_kinks_and_parts_that_cancel_are_not_refused():
    params, (x, y) = case()
    params["b"] *= 0
    x[2] = 0
    function = lambda p, x: relu(hidden(p, x)) @ p["a"] - held(x).sum(1)  # noqa: E731
    found = ft.measure(function, params, (x, y))
    assert found.method.startswith("exact: Gauss–Newton")
    assert found.least < found.trace


def test_integers_masks_and_keys_in_a_tree_are_constants():
    params, data = case()
    mask, key = np.arange(20).reshape(4, 5) % 3 > 0, jax.random.key(0)

    def function(p, x):
        scale = jax.random.uniform(p["key"], ()) / p["count"]
        return scale * relu(x @ (p["W"] * p["mask"]) + p["b"]) @ p["a"]

    more = {"mask": mask, "key": key, "count": 3}
    found = ft.measure(function, params | more, data)
    expected = ft.measure(lambda p, x: function(p | more, x), params, data)
    assert found.parameters == expected.parameters == 30
    assert (found.trace, found.least) == (expected.trace, expected.least)
    assert found.rescaled["count"] == 3


def test_a_complex_parameter_is_refused():
    params, data = case()
    params["W"] = params["W"] + 1j
    with pytest.raises(ft.FlattestError, match="W is complex"):
        ft.measure(lambda p, x: jnp.abs(x @ p["W"]) @ p["a"], params, data)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_wrong_derivative_of_a_unit_next_to_its_kink_is_seen_from_one_side(sign):
    params, data = case()

    def f(p, x):
        beside = relu(sign * (p["c"] - 1.0) + 1e-6)
        return relu(hidden(p, x)) @ p["a"] + halved(beside)

    with pytest.raises(ft.FlattestError, match="first derivatives"):
        ft.trace(f, params | {"c": np.ones(())}, data)
