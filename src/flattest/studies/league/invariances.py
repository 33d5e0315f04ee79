"""Which symmetries leave a measure as it is: tried on networks, not copied from papers.

A network is rescaled in ways that keep its function (by unit, by layer, by a matrix between two
linear layers), and its outputs are doubled, which keeps what it predicts. A measure that moves by
less than 1e-6 of itself is invariant; one that moves by more than 1e-3 is not; in between nobody
knows, and that is an error.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from flattest.curvature.result import whole
from flattest.errors import FlattestError
from flattest.flatness.league import MEASURES, League, league
from flattest.flatness.league_measures import LeagueSettings
from flattest.problem.data import Dataset
from flattest.problem.distributions import Ball
from flattest.problem.models import MLP

SYMMETRIES = {
    "unit": "what each unit gives out, times a factor of its own",
    "layer": "what each layer gives out, times one factor",
    "GL": "two linear layers with an invertible matrix between them",
    "logit scale": "outputs doubled (another function, the same predictions)",
}
SETTINGS = LeagueSettings(lr=0.1, steps=8, draws=8, m=6)
_SAME, _OTHER = 1e-6, 1e-3


class Twin(NamedTuple):
    """A network and, by the name of a symmetry, what that makes of it."""

    model: Any
    network: Any
    moved: Mapping[str, Any]


def table(twin: Twin, measured: Callable[[Any], League]) -> dict[str, dict[str, bool]]:
    """For each measure that the network has, by symmetry, whether it is invariant."""
    base = measured(twin.network)
    moved = {name: measured(network) for name, network in twin.moved.items()}
    return {
        name: {by: _is_same(name, base[name], found[name]) for by, found in moved.items()}
        for name in base.values
    }


def _is_same(name: str, one: float, other: float) -> bool:
    change = abs(other - one) / max(abs(one), abs(other), 1e-300)
    if _SAME < change < _OTHER:
        raise FlattestError(f"Whether {name} is invariant is not clear: it moves by {change:.1e}.")
    return change <= _SAME


def markdown(found: Mapping[str, Mapping[str, bool]]) -> str:
    """The table for people."""
    lines = [("measure", "formula", "source", *SYMMETRIES), ("---",) * (3 + len(SYMMETRIES))]
    for name, measure in MEASURES.items():
        marks = ("✓" if found[name][by] else "✗" for by in SYMMETRIES)
        lines.append((f"`{name}`", measure.formula.replace("|", "\\|"), measure.source, *marks))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def relu_network(seed: int = 0) -> tuple[Twin, Dataset]:
    """Three layers with a bias, rescaled by unit and by layer; outputs doubled."""
    model, data = MLP(6, depth=3, bias=True), Ball(4).draw(18, seed)
    theta, rng = _drawn(model, data, seed), np.random.default_rng(seed)
    first, second = np.exp(rng.normal(size=(2, 6)))
    moved = {
        "unit": _scaled(theta, first, second),
        "layer": _scaled(theta, np.full(6, 1.7), np.full(6, 0.4)),
        "logit scale": theta | {"W3": 2 * theta["W3"]},
    }
    return Twin(model, theta, moved), data


def linear_network(seed: int = 0) -> tuple[Twin, Dataset]:
    """Three linear layers, with an invertible matrix between the last two."""
    model, data = MLP(6, depth=3, bias=True, activation="linear"), Ball(4).draw(18, seed)
    theta = _drawn(model, data, seed)
    G = np.random.default_rng(seed).normal(size=(6, 6)) + 3 * np.eye(6)
    moved = theta | {"W2": G @ theta["W2"], "W3": np.linalg.solve(G.T, theta["W3"])}
    return Twin(model, theta, {"GL": moved}), data


def _drawn(model: MLP, data: Dataset, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) / 2 for name, shape in model.shapes(data.d).items()}


def _scaled(theta: dict[str, np.ndarray], first: np.ndarray, second: np.ndarray) -> dict:
    return {
        "W1": theta["W1"] * first[:, None],
        "b1": theta["b1"] * first,
        "W2": theta["W2"] / first * second[:, None],
        "W3": theta["W3"] / second,
    }


def found() -> dict[str, dict[str, bool]]:
    """The table, under the logistic loss."""
    tables = []
    for twin, data in (relu_network(), linear_network()):
        data = replace(data, y=np.sign(data.y))
        tables.append(table(twin, partial(_measured, twin.model, data)))
    return {name: {by: t[name][by] for t in tables for by in t[name]} for name in MEASURES}


def _measured(model: MLP, data: Dataset, params: Any) -> League:
    return whole(league(model, params, data, "logistic", settings=SETTINGS))
