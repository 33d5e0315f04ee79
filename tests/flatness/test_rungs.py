"""What a watch measures first, and that estimates are told from exact values everywhere."""

import csv
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import flattest as ft
from flattest.curvature.eigenvalues import DeadNetwork, _by_few_products
from flattest.curvature.result import Quantity
from flattest.flatness.rungs import FEW, Costs, Products, Rung, alike, ladder, named, settings_of
from support import cases

TWO = Rung(2, Products.FEW)


def test_rungs_go_up_from_two_samples_without_products():
    found = ladder(64, ["trace", "top_eigenvalue"])
    assert found[0] == Rung(2, Products.NONE)
    assert [rung.samples for rung in found[1:-1]] == [2, 4, 16, 64]
    assert found[-1] == Rung(64, Products.ALL)
    assert ladder(20, ["top_eigenvalue"])[:-1] == [Rung(n, Products.FEW) for n in (2, 4, 16, 20)]
    assert ladder(1, ["top_eigenvalue"]) == [Rung(1, Products.FEW), Rung(1, Products.ALL)]


def test_a_row_is_expected_to_cost_in_proportion_or_by_a_line():
    costs = Costs(glance=0.1, outputs=80)
    assert costs.expected(Rung(2, Products.NONE), None) == pytest.approx(0.1 * 80 / 8)
    assert costs.expected(TWO, None) == pytest.approx(0.1 * (16 + 80 / 8))
    costs.took(TWO, 1.0)
    assert costs.expected(Rung(4, Products.FEW), None) == 2.0
    costs.took(Rung(4, Products.FEW), 1.1)
    assert costs.expected(Rung(64, Products.FEW), None) == pytest.approx(2 * (1.1 + 60 * 0.05))
    # Once a rung was measured, by its last row.
    costs.took(TWO, 0.5)
    assert costs.expected(TWO, None) == 0.5
    # All products: how many depends on what is only estimated without them.
    costs.took(Rung(64, Products.FEW), 3.0)
    full = Rung(64, Products.ALL)
    assert costs.expected(full, {"trace": 1.0}) < costs.expected(full, {"trace_estimate": 1.0})


def test_an_estimate_has_another_name_than_an_exact_value():
    assert named("trace", Quantity(2.0, "exact")) == {"trace": 2.0}
    found = named("trace", Quantity(2.0, "estimate: Hutchinson", stderr=0.5))
    assert found == {"trace_estimate": 2.0, "trace_stderr": 0.5}
    found = named("trace", Quantity(2.0, "estimate: Hutchinson", stderr=0.0))
    assert found == {"trace_estimate": 2.0, "trace_stderr": 0.0}
    found = named("edge", Quantity(2.0, "estimate: Lanczos", residual=0.1))
    assert found == {"edge_estimate": 2.0, "edge_residual": 0.1}


def row(step, samples, **values):
    return {"step": step, "seconds": 0.0, "samples": samples, "train_loss": 1.0, **values}


def test_rows_are_compared_with_their_like():
    """Of the most samples of which there are two, exact with exact, estimated with estimated."""
    early = [row(0, 2, trace=10.0, least_trace=4.0), row(5, 2, trace=5.0, least_trace=4.0)]
    start = row(0, 4, trace=3.0, least_trace=3.0)
    estimated = row(8, 4, trace_estimate=7.0, trace_stderr=1.0)
    assert alike([*early, start]) == early
    assert alike([*early, start, estimated]) == early
    assert alike([*early, start, estimated, later := {**start, "step": 9}]) == [start, later]
    assert alike([start, estimated]) == []
    # Without a trace at all is another kind than with an estimate.
    assert alike([row(0, 4), estimated]) == []
    # The start, measured again with more products, is not something to compare the start with.
    again, at_five = {**start, "trace": 6.0}, {**start, "step": 5}
    assert alike([start, again]) == []
    assert alike([*early, start, again]) == early
    assert alike([start, at_five, later, again]) == [again, at_five, later]


def test_the_sentence_compares_the_last_step_with_the_first():
    """All products begin with the start, which is measured after what came later."""
    rows = [
        row(step, 4, trace=trace, least_trace=4.0) for step, trace in ((0, 10), (50, 8), (90, 5))
    ]
    said = watch_with([*rows, rows[0]]).sentence()
    assert "Tr ∇²L is 5 at step 90 and 10 at step 0" in said
    assert "only rescaled" in said
    assert "No two networks were measured alike" in watch_with([rows[0], rows[0]]).sentence()


def watch_with(rows, samples=4):
    model, data = cases.model("bias", "relu"), cases.data()
    watch = ft.Watch(model, data, samples=samples)
    watch.rows = rows
    return watch


def test_the_sentence_says_of_how_many_samples_and_whether_it_estimates():
    rows = [row(0, 2, trace=10.0, least_trace=4.0), row(5, 2, trace=5.0, least_trace=4.0)]
    rows += [row(0, 4, trace=9.0, least_trace=4.0)]
    said = watch_with(rows).sentence()
    assert "only rescaled" in said
    assert "on 2 of 4 samples" in said
    estimated = {"trace_estimate": 7.0, "trace_stderr": 1.5, "edge_estimate": 0.5}
    said = watch_with([row(0, 4, **estimated), row(6, 4, **estimated)]).sentence()
    assert "estimates, to ± 1.5 and 1.5" in said
    assert "η λ_max / 2 is at least 0.5" in said


def test_an_estimate_without_an_error_is_spoken_of_as_any_other():
    """At an interpolator ∇²L is its Gauss–Newton part, and what is drawn of the rest is 0."""
    rng = np.random.default_rng(0)
    params = {"W": rng.normal(size=(4, 10)), "a": rng.normal(size=10)}
    function, x = lambda p, x: jnp.tanh(x @ p["W"]) @ p["a"], rng.normal(size=(6, 4))
    data = x, np.asarray(function(params, x))
    settings = settings_of(Rung(6, Products.FEW), None)
    found = ft.league(function, params, data, only=["trace"], settings=settings)
    estimated = named("trace", found.values["trace"])
    assert estimated["trace_stderr"] == 0
    watch = ft.Watch(function, data, samples=6)
    watch.rows = [row(0, 6, **estimated), row(9, 6, **estimated)]
    assert "estimates, to ± 0 and 0" in watch.close()


def test_a_file_has_a_column_for_every_name_and_a_store_the_rows_that_are_compared(tmp_path):
    early, late = row(0, 2, trace=10.0), row(5, 2, trace=5.0)
    estimated = row(0, 4, trace_estimate=7.0, trace_stderr=1.5)
    log, store = ft.CsvLog(tmp_path / "rows.csv"), ft.StoreLog(tmp_path / "store", "mine")
    for one in (early, late, estimated):
        log.write(one)
    found = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert [one["trace"] for one in found] == ["10.0", "5.0", ""]
    assert [one["trace_estimate"] for one in found] == ["", "", "7.0"]
    store.close([early, late, estimated], "sentence")
    (stored,) = ft.Store.open(tmp_path / "store").runs()
    assert np.array_equal(stored.run()["sharpness"], [10.0, 5.0])
    assert np.array_equal(stored.run()["samples"], [2, 2])


def test_curves_and_epochs_do_not_go_back(tmp_path):
    steps, full = (0, 50, 90), {"top_eigenvalue": 3.0}
    rows = [*(row(step, 4, trace=10.0) for step in steps), row(0, 4, trace=10.0, **full)]
    rows.append(row(95, 4, trace=9.0, **full))
    store, logged = ft.StoreLog(tmp_path / "store", "mine"), []
    log = ft.WandbLog(SimpleNamespace(log=logged.append))
    for one in rows:
        log.write(one)
    store.close(rows, "sentence")
    (stored,) = ft.Store.open(tmp_path / "store").runs()
    assert np.array_equal(stored.run()["epoch"], [0, 50, 90, 95])
    for name, expected in (("trace", [0, 50, 90, 95]), ("top_eigenvalue", [0, 95])):
        has = [one for one in logged if f"flattest/4_samples/{name}" in one]
        assert [one["flattest/4_samples/step"] for one in has] == expected


def test_few_products_give_a_lower_bound_with_its_residual():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(30, 20))
    H = root @ root.T - np.eye(30)
    op = SimpleNamespace(size=30, matmat=lambda rows: rows @ H, as_params=lambda v: v)
    spectrum = np.linalg.eigvalsh(H)
    for most in (3, 40):
        found = _by_few_products(op, 1, 1e-6, most, np.empty((0, 0)))
        value, residual = found.values[0], found.residuals[0]
        assert value <= spectrum[-1] * (1 + 1e-12)
        assert np.abs(spectrum - value).min() <= 1.01 * residual * np.abs(spectrum).max() + 1e-12
        assert found.route.startswith("estimate") == (most == 3)
    op.matmat = np.zeros_like
    with pytest.raises(DeadNetwork):
        _by_few_products(op, 1, 1e-6, 3, np.empty((0, 0)))


def test_without_products_a_smooth_network_has_no_trace_and_with_few_an_estimate():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
    found = ft.torch.league(
        module, (x, y), "cross_entropy", only=["trace"], settings=settings_of(TWO, None)
    )
    assert found.values["trace"].stderr > 0
    assert f"{FEW} products" in found.values["trace"].route
    none = settings_of(Rung(2, Products.NONE), None)
    found = ft.torch.league(module, (x, y), "cross_entropy", only=["trace"], settings=none)
    assert "takes products" in found.missing["trace"]


def test_the_code_of_a_module_is_checked_once_for_a_number_of_samples_and_at_the_end(monkeypatch):
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from flattest.curvature import modules
    from flattest.curvature.module_operators import ModuleOperator

    checked, compared = [], []
    check, compare = modules._check_forward, ModuleOperator._check_second
    monkeypatch.setattr(
        modules, "_check_forward", lambda op: (checked.append(op.samples), check(op))
    )
    monkeypatch.setattr(
        ModuleOperator, "_check_second", lambda op, few: (compared.append(1), compare(op, few))
    )
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    data = torch.randn(8, 4), torch.randint(0, 3, (8,))
    watch = ft.torch.Watch(module, data, "cross_entropy", samples=2, share=1e9)
    for _ in range(6):
        watch.step()
    assert len(watch.rows) >= 5
    assert checked == [2]
    assert len(compared) == 1
    with torch.no_grad():
        module[0].weight.mul_(2)
    watch.step()
    expected = ft.torch.trace(module, (data[0][[0, 4]], data[1][[0, 4]]), "cross_entropy").value
    assert watch.rows[-1]["trace"] == pytest.approx(expected, rel=1e-12)
    checked.clear()
    watch.close(final=True)
    assert checked == [2]


@pytest.mark.parametrize("complete", [False, True])
def test_the_code_of_a_module_is_checked_at_the_end_whether_a_row_is_taken_or_not(
    monkeypatch, complete
):
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from flattest.errors import FlattestError

    class Changed(torch.nn.Module):
        """Its code changes as it is trained: a part of the outputs loses its derivative."""

        def __init__(self):
            super().__init__()
            self.one, self.two, self.cut = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3), False

        def forward(self, x):
            h = self.two(x)
            return self.one(x) + (h.detach() + 0 * h if self.cut else h)

    torch.manual_seed(0)
    module, data = Changed(), (torch.randn(8, 4), torch.randint(0, 3, (8,)))
    watch = ft.torch.Watch(module, data, "cross_entropy", samples=2, share=1e9)
    for _ in range(4):
        watch.step()
    module.cut = True
    monkeypatch.setattr(watch, "_complete", lambda step: complete)
    with pytest.raises(FlattestError, match="erivative"):
        watch.close(final=True)


def test_the_operation_that_ends_the_walk_is_named():
    torch = pytest.importorskip("torch", exc_type=ImportError)

    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.two(torch.cumprod(self.one(x), 1))

    torch.manual_seed(0)
    module, data = Odd(), (torch.randn(4, 3), torch.randint(0, 2, (4,)))
    notes = "; ".join(ft.torch.measure(module, data, "cross_entropy").notes)
    assert "over nothing that could be rescaled: its operation cumprod is not known" in notes
    assert "0 units" not in notes
    watch = ft.torch.Watch(module, data, "cross_entropy", share=1e-9)
    watch.step()
    assert "(its operation cumprod is not known)" in watch.close(final=True)
