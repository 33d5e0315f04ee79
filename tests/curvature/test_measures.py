"""Every measure is one function of an operator: the same tests over the three makers of one."""

import inspect
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

import flattest as ft
from flattest.curvature import sharpness
from flattest.curvature.diagonal import diagonal, trace
from flattest.curvature.eigenvalues import top_eigenvalue, top_eigenvalues
from flattest.curvature.estimators import hutchinson, xtrace
from flattest.curvature.sharpness import operator_of
from flattest.curvature.spectrum import spectrum
from support import cases, jets
from support.makers import CASES, MAKERS, flat

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")
over_the_makers = pytest.mark.parametrize(("maker", "architecture", "activation", "loss"), CASES)


@cache
def case(maker, architecture, activation, loss):
    """Operator, model, and ∇²L and its Gauss–Newton part as dense matrices."""
    model, data = cases.model(architecture, activation), cases.data()
    params = cases.params(model, data)
    f = jets.outputs(model, params, data.x)
    curvature = ft.loss(loss).curvature(f.value, data.y) / data.n
    gauss_newton = (curvature * f.gradient.T) @ f.gradient
    op = MAKERS[maker](model, params, data, loss)
    return op, model, jets.hessian(f, data, loss), gauss_newton


def dense_of(op, model, products):
    """A matrix given by its products with unit vectors, in the order of the MLP's parameters."""
    order = flat(model, op.by_name(np.arange(op.size)))
    return products(np.eye(op.size))[np.ix_(order, order)]


def close(value, expected, rel=1e-9):
    return np.abs(value - expected).max() <= rel * np.abs(expected).max()


@over_the_makers
def test_products_are_those_of_the_dense_hessian(maker, architecture, activation, loss):
    op, model, dense, _ = case(maker, architecture, activation, loss)
    assert close(dense_of(op, model, op.matmat), dense)
    v = np.random.default_rng(0).normal(size=op.size)
    product = flat(model, op.by_name(op.matvec(v)))
    assert close(product, dense @ flat(model, op.by_name(v)))


@over_the_makers
def test_the_two_parts_add_up_to_the_hessian(maker, architecture, activation, loss):
    op, model, dense, gauss_newton = case(maker, architecture, activation, loss)
    residual = dense_of(op, model, op.residual_matmat)
    split_off = flat(model, op.by_name(op.gauss_newton_diagonal()))
    if maker == "module":
        assert close(residual, dense)
        assert not op.gauss_newton_gram().size
        assert close(split_off, np.diag(gauss_newton)) or not op.structure.exact
        return
    assert close(residual + gauss_newton, dense)
    assert close(split_off, np.diag(gauss_newton))
    values = np.linalg.eigvalsh(op.gauss_newton_gram())
    assert close(values, np.linalg.eigvalsh(gauss_newton)[-len(values) :])
    A = np.array([flat(model, op.by_name(op.lifted(e))) for e in np.eye(len(values))])
    assert close(A.T @ A, gauss_newton)


@over_the_makers
def test_the_trace_is_that_of_the_dense_hessian(maker, architecture, activation, loss):
    op, _, dense, _ = case(maker, architecture, activation, loss)
    found = trace(op)
    assert found.value == pytest.approx(np.trace(dense), rel=1e-9)
    assert found.stderr == 0
    assert sum(found.per_layer.values()) == found.value
    assert set(found.per_layer) == set(op.by_name(np.zeros(op.size)))


@over_the_makers
def test_the_diagonal_is_exact_entry_by_entry(maker, architecture, activation, loss):
    op, model, dense, _ = case(maker, architecture, activation, loss)
    found = diagonal(op)
    assert close(flat(model, found.entries), np.diag(dense))
    piecewise_linear = "relu" in activation and "sim" not in architecture
    assert found.route.startswith("exact: Gauss–Newton" if piecewise_linear else "exact: all")


@over_the_makers
def test_a_large_operators_diagonal_is_estimated_with_its_error(
    maker, architecture, activation, loss
):
    op, _, dense, _ = case(maker, architecture, activation, loss)
    if op.structure.exact:
        assert diagonal(op, most_columns=10).stderr == 0
        return
    found = diagonal(op, rtol=0.02, most_products=8192, most_columns=10)
    assert "Hutchinson" in found.route
    assert 0 < found.stderr <= 0.02 * abs(found.trace.value)
    assert abs(found.trace.value - np.trace(dense)) <= 4 * found.stderr


@over_the_makers
def test_the_largest_eigenpairs_are_those_of_the_dense_hessian(
    maker, architecture, activation, loss
):
    op, model, dense, _ = case(maker, architecture, activation, loss)
    found = top_eigenvalues(op, 3, tol=1e-12)
    assert close(found.values, np.linalg.eigvalsh(dense)[::-1][:3])
    for value, vector, residual in zip(found.values, found.vectors, found.residuals, strict=True):
        v = flat(model, vector)
        assert np.linalg.norm(v) == pytest.approx(1, rel=1e-12)
        gap = np.linalg.norm(dense @ v - value * v) / np.abs(found.values).max()
        assert gap == pytest.approx(residual, rel=1e-3, abs=1e-9)
    assert top_eigenvalue(op).value == pytest.approx(found.values[0], rel=1e-9)


@over_the_makers
def test_the_spectrum_has_the_moments_of_the_dense_hessian(maker, architecture, activation, loss):
    op, _, dense, _ = case(maker, architecture, activation, loss)
    values, found = np.linalg.eigvalsh(dense), spectrum(op, probes=40, steps=40)
    assert found.weights.sum(axis=1) == pytest.approx(np.ones(40), rel=1e-12)
    assert found.nodes.min() >= values[0] - 1e-9 * abs(values).max()
    assert found.nodes.max() == pytest.approx(values[-1], rel=1e-9)
    for power in (1, 2, 3):
        mean, stderr = found.mean(lambda t, power=power: t**power)
        assert abs(mean - np.mean(values**power)) <= 4 * stderr
    grid = np.linspace(values[0] - 5, values[-1] + 5, 20_001)
    assert np.trapezoid(found.density(grid, width=0.5), grid) == pytest.approx(1, rel=1e-6)


def test_one_probe_says_nothing_of_the_spectrums_error():
    op, *_ = case("closed form", "bias", "relu", "mse")
    assert spectrum(op, probes=1).mean(np.square)[1] == np.inf


@over_the_makers
def test_estimates_agree_with_the_exact_trace(maker, architecture, activation, loss):
    op, _, dense, _ = case(maker, architecture, activation, loss)
    found = hutchinson(op, rtol=0.05, most_products=10_000)
    assert found.stderr <= 0.05 * abs(found.value)
    assert abs(found.value - np.trace(dense)) <= 4 * found.stderr
    assert sum(found.per_layer.values()) == pytest.approx(found.value, rel=1e-10)
    assert xtrace(op, rtol=1e-6).value == pytest.approx(np.trace(dense), rel=1e-6)


NAMES = ["trace", "hutchinson", "xtrace", "top_eigenvalue", "top_eigenvalues", "spectrum"]
# Measures that only modules have.
OF_MODULES = {"gauss_newton_trace", "least_gauss_newton"}


def measures(module):
    """The public functions of a module by name."""
    functions = inspect.getmembers(module, inspect.isfunction)
    return {name: f for name, f in functions if f.__module__ == module.__name__ and name[0] != "_"}


def test_every_measure_is_public():
    assert set(measures(sharpness)) - OF_MODULES == {*NAMES, "operator_of"}
    assert all(getattr(ft, name) is getattr(sharpness, name) for name in NAMES)


@pytest.mark.peer
def test_modules_have_every_measure_with_its_settings_and_defaults():
    pytest.importorskip("torch", exc_type=ImportError)
    found = measures(ft.torch)
    own = {*NAMES, *OF_MODULES, "measure", "league", "explain"}
    callbacks = {"Watch", "lightning_callback", "trainer_callback"}
    assert set(found) == own == set(ft.torch.__all__) - callbacks
    for name in own - OF_MODULES:
        of_module = found[name]
        _, _, *given = inspect.signature(getattr(ft, name)).parameters.values()
        module, *others, forward, dtype = inspect.signature(of_module).parameters.values()
        assert (module.name, forward.name, dtype.name) == ("module", "forward", "dtype")
        assert others == given
        assert inspect.getdoc(getattr(ft, name)).splitlines()[0] in of_module.__doc__


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_a_model_on_a_dataset_and_a_function_on_a_pair_have_the_same_measures(name):
    model, data = cases.model("bias", "softplus"), cases.data()
    params, more = cases.params(model, data), (2,) if name == "top_eigenvalues" else ()
    own = ft.FunctionModel(model.apply, model.init)
    given = [(own, data), (model.apply, (data.x, data.y)), (model, [(data.x, data.y)])]
    found = [number(getattr(ft, name)(what, params, where, *more)) for what, where in given]
    assert found == pytest.approx(found[:1] * 3, rel=1e-12)


def test_a_model_is_compiled_once_for_all_measures_and_a_function_anew():
    model, data = cases.model("bias", "softplus"), cases.data()
    params, own = cases.params(model, data), ft.FunctionModel(model.apply, model.init)
    one, two = (operator_of(own, params, data) for _ in range(2))
    assert one.compiled is two.compiled
    one, two = (operator_of(model.apply, params, data) for _ in range(2))
    assert one.compiled is not two.compiled


@dataclass
class Thawed:
    def init(self, d, seed):
        return {"w": np.ones(d)}

    def apply(self, params, x, train_x):
        return x @ params["w"]


def test_a_model_that_cannot_be_hashed_is_refused():
    data = cases.data()
    for measured in (ft.trace, ft.measure):
        with pytest.raises(ft.FlattestError, match="Thawed and the loss must be hashable"):
            measured(Thawed(), Thawed().init(data.d, 0), data)


@pytest.mark.peer
@pytest.mark.parametrize("name", NAMES)
def test_a_module_and_its_twin_have_the_same_public_measures(name):
    pytest.importorskip("torch", exc_type=ImportError)
    from support.twins import twin

    model, data = cases.model("bias", "softplus"), cases.data()
    params = cases.params(model, data)
    more = (2,) if name == "top_eigenvalues" else ()
    one = getattr(ft, name)(model, params, data, *more)
    two = getattr(ft.torch, name)(twin(model, params), data, *more)
    # Estimates draw the same vectors, but for other orders of the parameters.
    error = max(getattr(one, "stderr", 0), 1e-7 * number(one))
    assert abs(number(one) - number(two)) <= 6 * error


def number(found):
    if hasattr(found, "values"):
        return found.values[0]
    return found.nodes.max() if hasattr(found, "nodes") else found.value


@pytest.mark.parametrize(("width", "n"), [(8, 20), (400, 200)], ids=["one block", "two blocks"])
def test_the_trace_of_a_part_is_that_of_its_samples(width, n):
    """A sample that is taken twice counts twice; the trace of the whole is another."""
    data, model = ft.xor(n, 10, 0), ft.MLP(width, bias=True)
    params, chosen = model.init(10, 0), np.array([0, 1, 2, 2])
    whole = operator_of(model, params, data)
    expected = ft.trace(model, params, ft.Dataset(data.x[chosen], data.y[chosen]))
    assert float(trace(whole.part(chosen))) == pytest.approx(float(expected), rel=1e-12)
    assert float(trace(whole)) != pytest.approx(float(expected), rel=1e-3)
