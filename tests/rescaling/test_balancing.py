"""The least trace over rescalings of networks of any depth."""

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from scipy.optimize import minimize

from flattest.errors import FlattestError
from flattest.rescaling.balancing import Coupling, balance


def network(widths, seed, spread=1.0):
    """Random masses of a fully connected network with first-layer biases."""
    rng = np.random.default_rng(seed)
    names = [None, *(f"layer{i}" for i in range(1, len(widths) - 1)), None]
    shapes = list(zip(widths[1:], widths[:-1], strict=True))
    masses = [np.exp(spread * rng.normal(size=shape)) for shape in shapes]
    weights = [Coupling(names[i + 1], names[i], mass) for i, mass in enumerate(masses)]
    return [*weights, Coupling("layer1", None, np.exp(rng.normal(size=(widths[1], 1))))]


def trace_at(couplings, beta):
    """Σ G_ab (β_a/β_b)², entry by entry."""
    total = 0.0
    for c in couplings:
        for b, a in np.ndindex(c.mass.shape):
            above = 1.0 if c.source is None else beta[c.source][a]
            below = 1.0 if c.target is None else beta[c.target][b]
            total += c.mass[b, a] * (above / below) ** 2
    return total


def rescaled(couplings, seed):
    """The masses of an equivalent network, its units rescaled at random."""
    rng = np.random.default_rng(seed)
    names = {name for c in couplings for name in (c.target, c.source) if name}
    sizes = {c.target: c.mass.shape[0] for c in couplings if c.target}
    beta = {name: np.exp(rng.normal(size=sizes[name])) for name in sorted(names)}
    return [
        Coupling(
            c.target,
            c.source,
            c.mass
            * (1.0 if c.source is None else beta[c.source] ** 2)
            / (1.0 if c.target is None else beta[c.target][:, None] ** 2),
        )
        for c in couplings
    ]


def sparse(couplings, seed):
    """The couplings without about a third of their masses."""
    rng = np.random.default_rng(seed)
    return [
        Coupling(c.target, c.source, c.mass * (rng.uniform(size=c.mass.shape) < 0.7))
        for c in couplings
    ]


widths = st.lists(st.integers(1, 5), min_size=3, max_size=6)


@settings(max_examples=40, deadline=None)
@given(widths=widths, seed=st.integers(0, 10**6))
def test_the_least_trace_is_attained_certified_and_below_the_original(widths, seed):
    couplings = network(widths, seed)
    least = balance(couplings)
    assert least.value <= least.original * (1 + 1e-12)
    assert trace_at(couplings, least.beta) == pytest.approx(least.value, rel=1e-12)
    assert abs(least.gap) <= 1e-9


@settings(max_examples=20, deadline=None)
@given(widths=widths, seed=st.integers(0, 10**6))
def test_rescaling_the_network_does_not_change_the_least_trace(widths, seed):
    couplings = network(widths, seed)
    assert balance(rescaled(couplings, seed)).value == pytest.approx(
        balance(couplings).value, rel=1e-8
    )


def test_a_general_minimizer_finds_the_same_trace():
    couplings = [*network([3, 4, 3, 1], 0), Coupling("layer2", "layer2", np.ones((3, 3)))]

    def trace(t):
        return trace_at(couplings, {"layer1": np.exp(t[:4] / 2), "layer2": np.exp(t[4:] / 2)})

    found = minimize(trace, np.zeros(7), method="BFGS", options={"gtol": 1e-8})
    assert balance(couplings).value == pytest.approx(found.fun, rel=1e-8)


def test_two_layers_have_the_closed_form():
    a, b = np.array([[2.0], [3.0]]), np.array([[5.0, 7.0]])
    least = balance([Coupling("h", None, a), Coupling(None, "h", b)])
    assert least.value == pytest.approx(2 * np.sqrt(10) + 2 * np.sqrt(21), rel=1e-12)


def test_mass_that_no_circulation_carries_vanishes_in_the_infimum():
    dead_end = [Coupling("h", None, np.ones((2, 1))), Coupling(None, "h", np.array([[4.0, 0.0]]))]
    assert balance(dead_end).value == pytest.approx(4.0)


def test_a_point_that_is_not_balanced_is_not_certified():
    stopped = balance(network([4, 5, 5, 1], 1, spread=3.0), max_rounds=0)
    assert stopped.gap > 1e-3


@settings(max_examples=60, deadline=None)
@given(
    widths=st.lists(st.integers(1, 3), min_size=3, max_size=12),
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([1.0, 5.0, 20.0]),
)
@example(widths=[1, 2, 3, 1, 1, 3], seed=332, spread=20.0)
@example(widths=[2, 1, 3, 1, 2, 1, 2, 2], seed=90, spread=20.0)
def test_no_rescaling_is_flatter_than_the_bound_proved_at_any_point(widths, seed, spread):
    couplings = sparse(network(widths, seed, spread), seed)
    found = [balance(couplings, max_rounds=rounds) for rounds in (0, 1, 2, 100)]
    least = min(each.value for each in found)
    assert all(each.lower_bound <= least * (1 + 1e-12) for each in found)
    assert all(each.lower_bound <= each.value for each in found)
    assert found[-1].gap <= 1e-8


@pytest.mark.parametrize("seed", [271, 738, 879, 2688, 3015])
def test_masses_spread_over_60_decades_are_balanced_and_certified_at_depth_10(seed):
    """Their smallest units carry so little that the circulation's solver does not see them."""
    rng = np.random.default_rng(seed)
    widths, names = [2, 3, 3, 1, 1, 3, 3, 1, 1, 3, 2], [None, *"abcdefghi", None]
    couplings = []
    for i, shape in enumerate(zip(widths[1:], widths[:-1], strict=True)):
        mass = np.exp(20 * rng.normal(size=shape)) * (rng.uniform(size=shape) < 0.7)
        couplings.append(Coupling(names[i + 1], names[i], mass))
    least = balance([*couplings, Coupling("a", "a", np.exp(20 * rng.normal(size=(3, 3))))])
    assert least.imbalance <= 1e-10
    assert 0 <= least.gap <= 1e-9


def test_unusable_masses_are_refused():
    with pytest.raises(FlattestError, match="non-negative"):
        balance([Coupling("h", None, -np.ones((2, 1)))])
    with pytest.raises(FlattestError, match="2 and 3 units"):
        balance([Coupling("h", None, np.ones((2, 1))), Coupling(None, "h", np.ones((1, 3)))])
