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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.sparse.linalg import LinearOperator, cg

from flattest.errors import FlattestError

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
    beta: dict[str, np.ndarray]
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
    masses, groups = _numbered(couplings)
    masses = _carried(masses)
    t = np.zeros(masses.size)
    rounds, remaining = 0, np.inf
    while remaining > tolerance and rounds < max_rounds:
        _osborne_sweep(masses, groups.values(), t)
        remaining = _imbalance(masses.scaled(t))
        if remaining > tolerance:
            _newton_step(masses, t)
        rounds += 1
    reached = masses.scaled(t)
    return Balance(
        value=reached.total,
        original=float(sum(np.sum(c.mass) for c in couplings)),
        beta={name: np.exp(t[group] / 2) for name, group in groups.items()},
        lower_bound=_dual_value(masses, reached),
        imbalance=remaining,
        rounds=rounds,
    )


@dataclass(frozen=True)
class _Masses:
    """G_ab between `size` numbered units, in `blocks` (targets b, sources a, matrix b × a).

    Unit 0 is all that cannot be rescaled, taken as one: masses that differ in such ends only are
    scaled alike, so that their sum is all that matters.
    """

    blocks: list[tuple[slice, slice, np.ndarray]]
    size: int

    @property
    def total(self) -> float:
        return float(sum(mass.sum() for _, _, mass in self.blocks))

    def scaled(self, t: np.ndarray) -> "_Masses":
        """G_ab exp(t_a − t_b)."""
        e = np.exp(t)
        return _Masses([(b, a, G * e[a] / e[b][:, None]) for b, a, G in self.blocks], self.size)

    def flows(self) -> tuple[np.ndarray, np.ndarray]:
        """Incoming and outgoing mass of every unit; mass from a unit to itself is in both."""
        incoming, outgoing = np.zeros((2, self.size))
        for b, a, mass in self.blocks:
            incoming[b] += mass.sum(axis=1)
            outgoing[a] += mass.sum(axis=0)
        return incoming, outgoing

    def surplus(self) -> np.ndarray:
        """∇P: the mass that a unit gives away less what it receives, 0 for what is fixed."""
        incoming, outgoing = self.flows()
        return np.where(np.arange(self.size) > 0, outgoing - incoming, 0.0)

    def graph(self) -> csr_array:
        """An edge from a to b for each G_ab > 0."""
        edges = [
            (j + a.start, i + b.start, mass[i, j])
            for b, a, mass in self.blocks
            for i, j in [np.nonzero(mass)]
        ]
        tails, heads, weights = (np.concatenate(column) for column in zip(*edges, strict=True))
        # The shortest paths of SciPy 1.14 take no larger indices.
        places = (tails.astype(np.int32), heads.astype(np.int32))
        return coo_array((weights, places), shape=(self.size, self.size)).tocsr()


def _numbered(couplings: Sequence[Coupling]) -> tuple[_Masses, dict[str, slice]]:
    """The masses between numbered units, and the numbers of each group."""
    groups: dict[str | None, slice] = {None: slice(0, 1)}
    blocks, size = [], 1
    for c in couplings:
        mass = np.asarray(c.mass, np.float64)
        if mass.ndim != 2 or not np.isfinite(mass).all() or (mass < 0).any():
            raise FlattestError("Masses must be finite, non-negative matrices (targets × sources).")
        for axis, name in enumerate((c.target, c.source)):
            mass = mass.sum(axis=axis, keepdims=True) if name is None else mass
            count = mass.shape[axis]
            group = groups.setdefault(name, slice(size, size + count))
            if group.stop - group.start != count:
                known = group.stop - group.start
                raise FlattestError(f"Group {name!r} is given with {known} and {count} units.")
            size = max(size, group.stop)
        blocks.append((groups[c.target], groups[c.source], mass))
    return _Masses(blocks, size), {name: group for name, group in groups.items() if name}


def _components(masses: _Masses) -> np.ndarray:
    """The number of each unit's strongly connected component."""
    return connected_components(masses.graph(), connection="strong")[1]


def _carried(masses: _Masses) -> _Masses:
    """The masses that lie on a cycle: those between units of one component."""
    part = _components(masses)
    return _Masses(
        [(b, a, mass * (part[b][:, None] == part[a])) for b, a, mass in masses.blocks], masses.size
    )


def _imbalance(masses: _Masses) -> float:
    worst = np.abs(masses.surplus()).max()
    return float(worst / masses.total) if worst > 0 else 0.0


def _osborne_sweep(masses: _Masses, groups: Iterable[slice], t: np.ndarray) -> None:
    """One group after another: the exact minimizer in that group while the others are held.

    Units that feed units of their own group (a residual sum ties both ends of its block) do not
    move independently; for them the step is halved, which keeps P falling.
    """
    for group in groups:
        own = [block for block in masses.blocks if group in block[:2]]
        flows = _Masses(own, masses.size).scaled(t).flows()
        incoming, outgoing = (flow[group] for flow in flows)
        flowing = incoming > 0
        tied = any(b == a for b, a, _ in own)
        t[group][flowing] += np.log(incoming[flowing] / outgoing[flowing]) / (4 if tied else 2)


def _newton_step(masses: _Masses, t: np.ndarray) -> None:
    """One damped Newton step: ∇²P is the Laplacian of the graph of scaled masses."""
    scaled = masses.scaled(t)
    gradient = scaled.surplus()
    direction = _laplacian_solve(scaled, -gradient, rtol=1e-6)
    slope = gradient @ direction
    for step in 0.5 ** np.arange(20):
        trial = t + step * direction
        # A step so long that masses overflow is refused like any other that is too long.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            reached = masses.scaled(trial).total
        if reached <= scaled.total + 1e-4 * step * slope:
            t[:] = trial
            return


def _laplacian_solve(masses: _Masses, right: np.ndarray, rtol: float) -> np.ndarray:
    """v with (incoming + outgoing) v − Σ mass · v = right, v_0 = 0, by conjugate gradients."""
    degree = sum(masses.flows())
    # A unit through which nothing flows has a zero row; it stays where it is.
    degree = np.where(degree > 0, degree, 1.0)
    inner = [block for block in masses.blocks if block[0].start and block[1].start]

    def laplacian(v: np.ndarray) -> np.ndarray:
        product = degree * v
        for b, a, mass in inner:
            product[b] -= mass @ v[a]
            product[a] -= v[b] @ mass
        return product

    shape = (masses.size, masses.size)
    # Masses that underflow end the iteration in NaN: neither a step nor a flow, as callers check.
    with np.errstate(divide="ignore", invalid="ignore"):
        return cg(
            LinearOperator(shape, laplacian, dtype=np.float64),
            right,
            rtol=rtol,
            maxiter=1000,
            M=LinearOperator(shape, lambda r: r / degree, dtype=np.float64),
        )[0]


def _dual_value(masses: _Masses, scaled: _Masses) -> float:
    """The best bound below P that the scaled masses, or the circulation near them, prove.

    The masses themselves prove more where the circulation is missed by more than they miss it.
    """
    reach = _reach(masses, scaled)
    bounds = [_proved(scaled, flow, reach) for flow in (scaled, _circulation(scaled))]
    # Rounding may leave the bound of a balanced point above its value.
    return min(max(bounds), scaled.total)


def _proved(scaled: _Masses, flow: _Masses, reach: _Reach) -> float:
    """A bound below P from any flow w ≥ 0, conserved or not.

    With Σ w = 1 and r_u the outgoing less the incoming w of unit u, the inequality of weighted
    means gives P(s) ≥ Π (G_e/w_e)^{w_e} exp(Σ r_u s_u) for every change s of t, G the scaled
    masses. Only those with P(s) ≤ P(0) matter, and none of them moves a unit beyond its reach.
    """
    total = flow.total
    if not 0 < total < np.inf:
        return 0.0
    surplus = flow.surplus()
    moved = surplus != 0
    # The largest −Σ r_u s_u, s within reach.
    exponent = -float(np.abs(surplus[moved]) @ np.where(surplus > 0, *reach)[moved]) / total
    for (_, _, G), (_, _, w) in zip(scaled.blocks, flow.blocks, strict=True):
        share = w[w > 0] / total
        exponent += float((share * np.log(G[w > 0] / share)).sum())
    return float(np.exp(exponent))


def _reach(masses: _Masses, scaled: _Masses) -> _Reach:
    """How far each unit's t can fall, and rise, before P exceeds its value V at the scaled masses.

    One edge already gives G_ab exp(s_a − s_b) ≤ V, that is s_a − s_b ≤ log(V/G_ab). Summed along
    paths from and to a unit that is held, those are shortest paths. In a component without a fixed
    unit any may be held: moving all of it changes nothing.
    """
    _, held = np.unique(_components(masses), return_index=True)
    graph = scaled.graph()
    graph.data = np.maximum(np.log(scaled.total / graph.data), 0)
    return tuple(dijkstra(g, indices=held, min_only=True) for g in (graph, graph.T))


def _circulation(masses: _Masses) -> _Masses:
    """The masses G_ab (1 + v_b − v_a)⁺, v such that hidden units conserve mass.

    That is a Laplacian system whose right-hand side is the remaining imbalance, so near balance
    the factors are near 1; the second round takes off the solver's own rounding. Far from balance
    factors may be cut at 0, and masses of very different size leave the solver short of its goal.
    """
    for _ in range(2):
        v = _laplacian_solve(masses, masses.surplus(), rtol=1e-12)
        corrected = [
            (b, a, mass * np.maximum(1 + v[b][:, None] - v[a], 0)) for b, a, mass in masses.blocks
        ]
        masses = _Masses(corrected, masses.size)
    return masses
