"""The least trace over all rescalings of a network of any depth: matrix balancing (Osborne 1960).

Scaling what a hidden unit u gives out by β_u, and what it receives down again, multiplies the
squared gradient of a weight from a to b by (β_a/β_b)². With t = 2 log β and the Gauss–Newton masses
G_ab (the squared gradients, summed as the trace sums them) the trace over the orbit is

    P(t) = Σ G_ab exp(t_a − t_b),

convex in t, with t = 0 on inputs, outputs and the constant that feeds biases. P is least where at
every hidden unit incoming mass equals outgoing mass. Geometric-programming duality certifies it:
every circulation w ≥ 0 (Σ w = 1, conserved at hidden units) proves P ≥ Π (G_e/w_e)^{w_e}. Flows
found in floating point conserve mass to rounding only, and the bound is weakened by what is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.sparse.linalg import LinearOperator, cg

from flattest.errors import FlattestError

Scales = dict[str, np.ndarray]
_Reach = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Coupling:
    """The masses of one weight: `mass[b, a]` from unit a of group `source` to unit b of `target`.

    A group is a vector of hidden units (the channels of a convolution count one each); None stands
    for what cannot be rescaled: inputs, outputs, the constant behind a bias.
    """

    target: str | None
    source: str | None
    mass: np.ndarray


@dataclass(frozen=True)
class Balance:
    """The flattest rescaling: the least trace, β by group, and what certifies it.

    `lower_bound` is proved by a flow (0 where none was found that proves more), so that
    value / lower_bound − 1 bounds the remaining gap;
    `imbalance` is the largest |incoming − outgoing| mass of a unit relative to the trace.
    """

    value: float
    original: float
    beta: Scales
    lower_bound: float
    imbalance: float
    rounds: int

    @property
    def gap(self) -> float:
        return self.value / self.lower_bound - 1 if self.lower_bound > 0 else float(self.value > 0)


def balance(
    couplings: Sequence[Coupling], tolerance: float = 1e-10, max_rounds: int = 100
) -> Balance:
    """Minimizes P by Osborne sweeps, one group at a time, and Newton steps on the graph Laplacian.

    Masses that no circulation can carry (into a dead end, say) are driven to zero by the infimum;
    they are left out beforehand.
    """
    masses = _carried(_checked(couplings))
    t = {name: np.zeros(size) for name, size in _group_sizes(masses).items()}
    rounds, remaining = 0, np.inf
    while remaining > tolerance and rounds < max_rounds:
        _osborne_sweep(masses, t)
        remaining = _imbalance(_scaled(masses, t))
        if remaining > tolerance:
            _newton_step(masses, t)
        rounds += 1
    return Balance(
        value=_total(_scaled(masses, t)),
        original=float(sum(np.sum(c.mass) for c in couplings)),
        beta={name: np.exp(v / 2) for name, v in t.items()},
        lower_bound=_dual_value(masses, _scaled(masses, t)),
        imbalance=remaining,
        rounds=rounds,
    )


def _checked(couplings: Sequence[Coupling]) -> list[Coupling]:
    sizes: dict[str, int] = {}
    for c in couplings:
        mass = np.asarray(c.mass, np.float64)
        if mass.ndim != 2 or not np.isfinite(mass).all() or (mass < 0).any():
            raise FlattestError("Masses must be finite, non-negative matrices (targets × sources).")
        for name, size in ((c.target, mass.shape[0]), (c.source, mass.shape[1])):
            if name is not None and sizes.setdefault(name, size) != size:
                raise FlattestError(f"Group {name!r} is given with {sizes[name]} and {size} units.")
    return [Coupling(c.target, c.source, np.asarray(c.mass, np.float64)) for c in couplings]


def _group_sizes(couplings: Sequence[Coupling]) -> dict[str, int]:
    ends = [
        pair for c in couplings for pair in zip((c.target, c.source), c.mass.shape, strict=True)
    ]
    return {name: size for name, size in ends if name is not None}


def _carried(couplings: list[Coupling]) -> list[Coupling]:
    """The couplings without masses that lie on no cycle (through the fixed units, taken as one).

    Those are the masses between different strongly connected components of the graph of units.
    """
    ends = _ends(couplings)
    _, component = connected_components(_graph(couplings), connection="strong")
    return [
        Coupling(c.target, c.source, c.mass * (component[target][:, None] == component[source]))
        for c, (target, source) in zip(couplings, ends, strict=True)
    ]


def _graph(couplings: Sequence[Coupling]) -> csr_array:
    """The graph of units, an edge from a to b with the sum of the masses G_ab; 0 is all fixed."""
    ends = _ends(couplings)
    used = [np.nonzero(c.mass) for c in couplings]
    rows = np.concatenate([source[a] for (_, source), (_, a) in zip(ends, used, strict=True)])
    columns = np.concatenate([target[b] for (target, _), (b, _) in zip(ends, used, strict=True)])
    masses = np.concatenate([c.mass[there] for c, there in zip(couplings, used, strict=True)])
    count = 1 + sum(_group_sizes(couplings).values())
    return coo_array((masses, (rows, columns)), shape=(count, count)).tocsr()


def _ends(couplings: Sequence[Coupling]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The graph's node numbers of each coupling's targets and sources; 0 for all that is fixed."""
    sizes = _group_sizes(couplings)
    first = dict(zip(sizes, np.cumsum([1, *sizes.values()]), strict=False))

    def nodes(group: str | None, size: int) -> np.ndarray:
        return np.zeros(size, int) if group is None else first[group] + np.arange(size)

    return [(nodes(c.target, c.mass.shape[0]), nodes(c.source, c.mass.shape[1])) for c in couplings]


def _scaled(couplings: Sequence[Coupling], t: Scales) -> list[Coupling]:
    """The couplings with masses G_ab exp(t_a − t_b)."""
    factor = {name: np.exp(values) for name, values in t.items()}
    return [
        Coupling(
            c.target,
            c.source,
            c.mass
            * (1.0 if c.source is None else factor[c.source])
            / (1.0 if c.target is None else factor[c.target][:, None]),
        )
        for c in couplings
    ]


def _flows(couplings: Sequence[Coupling]) -> tuple[Scales, Scales]:
    """Incoming and outgoing mass of every hidden unit; mass from a unit to itself is in both."""
    incoming = {name: np.zeros(size) for name, size in _group_sizes(couplings).items()}
    outgoing = {name: np.zeros(size) for name, size in _group_sizes(couplings).items()}
    for c in couplings:
        if c.target is not None:
            incoming[c.target] += c.mass.sum(axis=1)
        if c.source is not None:
            outgoing[c.source] += c.mass.sum(axis=0)
    return incoming, outgoing


def _total(couplings: Sequence[Coupling]) -> float:
    return float(sum(c.mass.sum() for c in couplings))


def _imbalance(couplings: Sequence[Coupling]) -> float:
    incoming, outgoing = _flows(couplings)
    worst = max((np.abs(incoming[g] - outgoing[g]).max(initial=0) for g in incoming), default=0.0)
    return float(worst / _total(couplings)) if worst > 0 else 0.0


def _osborne_sweep(masses: Sequence[Coupling], t: Scales) -> None:
    """One group after another: the exact minimizer in that group while the others are held.

    Units that feed units of their own group (a residual sum ties both ends of its block) do not
    move independently; for them the step is halved, which keeps P falling.
    """
    for name in t:
        own = _scaled([c for c in masses if name in (c.target, c.source)], t)
        incoming, outgoing = (flow[name] for flow in _flows(own))
        flowing = incoming > 0
        tied = any(c.target == c.source for c in own)
        t[name][flowing] += np.log(incoming[flowing] / outgoing[flowing]) / (4 if tied else 2)


def _newton_step(masses: Sequence[Coupling], t: Scales) -> None:
    """One damped Newton step: ∇²P is the Laplacian of the graph of scaled masses."""
    scaled = _scaled(masses, t)
    incoming, outgoing = _flows(scaled)
    gradient = {g: outgoing[g] - incoming[g] for g in t}
    direction = _laplacian_solve(scaled, {g: -gradient[g] for g in t}, rtol=1e-6)
    slope = sum(float(gradient[g] @ direction[g]) for g in t)
    value, step = _total(scaled), 1.0
    while step > 1e-6:
        trial = {g: t[g] + step * direction[g] for g in t}
        # A step so long that masses overflow is refused like any other that is too long.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            reached = _total(_scaled(masses, trial))
        if reached <= value + 1e-4 * step * slope:
            t.update(trial)
            return
        step /= 2


def _laplacian_solve(couplings: Sequence[Coupling], right: Scales, rtol: float) -> Scales:
    """v with (incoming + outgoing) v − Σ mass · v = right, by conjugate gradients."""
    incoming, outgoing = _flows(couplings)
    degree = np.concatenate([incoming[g] + outgoing[g] for g in right])
    # A unit through which nothing flows has a zero row; it stays where it is.
    degree = np.where(degree > 0, degree, 1.0)
    inner = [c for c in couplings if c.target is not None and c.source is not None]
    slices = _slices(right)

    def laplacian(v: np.ndarray) -> np.ndarray:
        product = degree * v
        for c in inner:
            product[slices[c.target]] -= c.mass @ v[slices[c.source]]
            product[slices[c.source]] -= v[slices[c.target]] @ c.mass
        return product

    shape = (len(degree), len(degree))
    # Masses that underflow end the iteration in NaN: neither a step nor a flow, as callers check.
    with np.errstate(divide="ignore", invalid="ignore"):
        v, _ = cg(
            LinearOperator(shape, laplacian, dtype=np.float64),
            np.concatenate(list(right.values())),
            rtol=rtol,
            maxiter=1000,
            M=LinearOperator(shape, lambda r: r / degree, dtype=np.float64),
        )
    return {g: v[part] for g, part in slices.items()}


def _slices(groups: Scales) -> dict[Any, slice]:
    ends = np.cumsum([len(values) for values in groups.values()])
    starts = [0, *ends[:-1]]
    return {g: slice(a, b) for g, a, b in zip(groups, starts, ends, strict=True)}


def _dual_value(masses: Sequence[Coupling], scaled: Sequence[Coupling]) -> float:
    """The best bound below P that the scaled masses, or the circulation near them, prove.

    The masses themselves prove more where the circulation is missed by more than they miss it.
    """
    reach = _reach(masses, scaled)
    bounds = [_proved(scaled, flow, reach) for flow in (scaled, _circulation(scaled))]
    # Rounding may leave the bound of a balanced point above its value.
    return min(max(bounds), _total(scaled))


def _proved(scaled: Sequence[Coupling], flow: Sequence[Coupling], reach: _Reach) -> float:
    """A bound below P from any flow w ≥ 0, conserved or not.

    With Σ w = 1 and r_u the outgoing less the incoming w of unit u, the inequality of weighted
    means gives P(s) ≥ Π (G_e/w_e)^{w_e} exp(Σ r_u s_u) for every change s of t, G the scaled
    masses. Only those with P(s) ≤ P(0) matter, and none of them moves a unit beyond its reach.
    """
    total = _total(flow)
    if not 0 < total < np.inf:
        return 0.0
    exponent = -_cost_of_imbalance(flow, reach) / total
    for c, w in zip(scaled, flow, strict=True):
        used = w.mass > 0
        share = w.mass[used] / total
        exponent += float((share * np.log(c.mass[used] / share)).sum())
    return float(np.exp(exponent))


def _cost_of_imbalance(flow: Sequence[Coupling], reach: _Reach) -> float:
    """The largest −Σ r_u s_u, r_u the mass that unit u of `flow` gives away, s within reach."""
    incoming, outgoing = _flows(flow)
    surplus = np.concatenate([[0.0], *(outgoing[g] - incoming[g] for g in incoming)])
    distance = np.where(surplus > 0, *reach)
    moved = surplus != 0
    return float(np.abs(surplus[moved]) @ distance[moved])


def _reach(masses: Sequence[Coupling], scaled: Sequence[Coupling]) -> _Reach:
    """How far each unit's t can fall, and rise, before P exceeds its value V at the scaled masses.

    One edge already gives G_ab exp(s_a − s_b) ≤ V, that is s_a − s_b ≤ log(V/G_ab). Summed along
    paths from and to a unit that is held, those are shortest paths. In a component without a fixed
    unit any may be held: moving all of it changes nothing.
    """
    _, component = connected_components(_graph(masses), connection="strong")
    _, held = np.unique(component, return_index=True)
    graph = _graph(scaled)
    graph.data = np.maximum(np.log(_total(scaled) / graph.data), 0)
    fall, rise = (dijkstra(g, indices=held, min_only=True) for g in (graph, graph.T))
    return fall, rise


def _circulation(couplings: Sequence[Coupling]) -> list[Coupling]:
    """The couplings with masses G_ab (1 + v_b − v_a)⁺, v such that hidden units conserve mass.

    That is a Laplacian system whose right-hand side is the remaining imbalance, so near balance
    the factors are near 1; the second round takes off the solver's own rounding. Far from balance
    factors may be cut at 0, and masses of very different size leave the solver short of its goal.
    """
    for _ in range(2):
        incoming, outgoing = _flows(couplings)
        excess = {g: outgoing[g] - incoming[g] for g in incoming}
        if not excess:
            break
        v = _laplacian_solve(couplings, excess, rtol=1e-12)
        couplings = [Coupling(c.target, c.source, c.mass * _correction(c, v)) for c in couplings]
    return list(couplings)


def _correction(c: Coupling, v: Scales) -> np.ndarray:
    gained = v[c.target][:, None] if c.target is not None else np.zeros((c.mass.shape[0], 1))
    lost = v[c.source][None, :] if c.source is not None else np.zeros((1, c.mass.shape[1]))
    return np.maximum(1 + gained - lost, 0)
