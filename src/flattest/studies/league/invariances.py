"""Which symmetries leave a measure as it is: tried on networks, not copied from papers.

A network is rescaled in ways that keep its function (by unit, by layer, by a matrix between two
linear layers), and its outputs are doubled, which keeps what it predicts. A measure that moves by
less than 1e-6 of itself is invariant; one that moves by more than 1e-3 is not; in between nobody
knows, and that is an error.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from flattest.errors import FlattestError
from flattest.flatness.league import MEASURES, League, LeagueSettings, league

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


def network(params, x):
    """Two linear layers, a ReLU with biases, and three outputs."""
    import jax

    hidden = jax.nn.relu((x @ params["A"]) @ params["B"] + params["b"])
    return hidden @ params["C"] + params["c"]


def sample(seed: int = 0) -> tuple[Twin, tuple[np.ndarray, np.ndarray]]:
    """Such a network, with its images under all symmetries, and data with three classes."""
    rng = np.random.default_rng(seed)
    shapes = {"A": (5, 4), "B": (4, 6), "b": 6, "C": (6, 3), "c": 3}
    theta = {name: rng.normal(size=shape) / 2 for name, shape in shapes.items()}
    linear, hidden = (np.exp(rng.normal(size=k)) for k in (4, 6))
    G = rng.normal(size=(4, 4)) + 2 * np.eye(4)
    moved = {
        "unit": _scaled(theta, linear, hidden),
        "layer": _scaled(theta, np.full(4, 1.7), np.full(6, 0.4)),
        "GL": theta | {"A": theta["A"] @ G, "B": np.linalg.solve(G, theta["B"])},
        "logit scale": theta | {"C": 2 * theta["C"], "c": 2 * theta["c"]},
    }
    return Twin(theta, moved), (rng.normal(size=(18, 5)), rng.integers(0, 3, 18))


def _scaled(theta: dict[str, np.ndarray], linear: np.ndarray, hidden: np.ndarray) -> dict:
    return theta | {
        "A": theta["A"] * linear,
        "B": theta["B"] / linear[:, None] * hidden,
        "b": theta["b"] * hidden,
        "C": theta["C"] / hidden[:, None],
    }


def found() -> dict[str, dict[str, bool]]:
    """The table of `sample`'s network under the cross-entropy."""
    twin, data = sample()
    return table(
        twin, lambda params: league(network, params, data, "cross_entropy", settings=SETTINGS)
    )
