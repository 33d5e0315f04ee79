"""The least Gauss–Newton trace over all bases that a network leaves open, by alternation.

A basis changed by A turns the gradients of the weights at it into A⁻ᵀ G (weights that lead to it)
and G Aᵀ (weights that lead away), so that with P = Aᵀ A for every basis (e^t, a number, for a unit
that is only rescaled) the trace is

    F = Σ over weights and samples of tr(P_l^{ε_l} G P_r^{ε_r} Gᵀ),

ε = −1 at the end a weight leads to, +1 at the one it comes from, the other way round on a dual side
(keys, where queries have A). Along geodesics P_v(τ) = P_v^{1/2} e^{τX_v} P_v^{1/2} it is a sum of
exponentials of τ with coefficients ≥ 0, so that log F is convex along them and a stationary point
is the least over all bases at once. With all other bases held, the least over one of them is
2 ‖M^{1/2} N^{1/2}‖_* (`general_linear`), over all units that are only rescaled a balance of masses
(`balancing`); these take turns. That the turns end in the least is not assumed: where they ended,
`_proved` bounds it from below.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from flattest.rescaling.balancing import Coupling, balance
from flattest.rescaling.general_linear import least

# Masses below this part of all are squares of rounding errors.
_ROUNDING = 1e-26
# Below this part of the largest, an eigenvalue is taken for 0.
_SINGULAR = 1e-13
_ROUNDS = 500
# How far out P goes where the infimum has it at ∞: its root, in the weights, costs three digits.
_FAR = 1e6


@dataclass(frozen=True)
class Place:
    """One end of a term: a vector's number, or the numbers of units that are only rescaled, or
    neither, which is held; and the exponent ε."""

    vector: int | None = None
    units: tuple[int, ...] = ()
    exponent: int = 0


@dataclass(frozen=True)
class Term:
    """Σ over samples of G ⊗ G between two places, what the weight leads to and where it comes from:
    an axis for units, two for a vector, none for what is held."""

    left: Place
    right: Place
    gram: np.ndarray

    @property
    def places(self) -> tuple[Place, Place]:
        return self.left, self.right


@dataclass
class Point:
    """P of each vector, and t of each unit."""

    P: list[np.ndarray]
    t: np.ndarray

    def weight(self, place: Place) -> np.ndarray:
        if place.vector is not None:
            P = self.P[place.vector]
            return P if place.exponent > 0 or not P.size else np.linalg.inv(P)
        if place.units:
            return np.exp(place.exponent * self.t[list(place.units)])
        return np.ones(())


@dataclass(frozen=True)
class Alternated:
    """`value` is the least of F, proven down to `lower_bound`; F is `attained` at P and t, which is
    more where the least is only approached."""

    value: float
    lower_bound: float
    attained: float
    point: Point
    rounds: int


def alternated(
    terms: Sequence[Term], sizes: Sequence[int], units: int, tolerance: float = 1e-12
) -> Alternated:
    """F of these terms at its least, over vectors of these sizes and so many units. Parts of the
    network that no term connects are minimized, and proven, each for itself."""
    point = Point([np.eye(size) for size in sizes], np.zeros(units))
    value = lower = 0.0
    rounds = 0
    for part in _parts(terms, len(sizes), units):
        found = _least(part, point, tolerance)
        value, lower, rounds = value + found[0], lower + found[1], max(rounds, found[2])
    return Alternated(value, lower, total(terms, point), point, rounds)


def total(terms: Iterable[Term], point: Point) -> float:
    """F."""
    return sum(float((_seen(t, 0, point.weight) * point.weight(t.left)).sum()) for t in terms)


def _seen(term: Term, side: int, weight_of: Callable[[Place], np.ndarray]) -> np.ndarray:
    """A term as one of its ends sees it: contracted with the weight at the other."""
    weight = weight_of(term.places[1 - side])
    pair = (term.gram, weight) if side == 0 else (weight, term.gram)
    return np.tensordot(*pair, weight.ndim)


def _parts(terms: Sequence[Term], vectors: int, units: int) -> list[list[Term]]:
    """The terms by connected part of the network; those that nothing changes, one by one."""
    numbered = [_nodes(term, vectors) for term in terms]
    rows, columns = np.array([(n[0], m) for n in numbered for m in n], int).reshape(-1, 2).T
    count = max(1, vectors + units)
    graph = coo_array((np.ones(len(rows), np.int8), (rows, columns)), (count, count))
    of = connected_components(graph, directed=False)[1]
    found: dict[int, list[Term]] = {}
    for at, (term, nodes) in enumerate(zip(terms, numbered, strict=True)):
        found.setdefault(of[nodes[0]] if nodes else -1 - at, []).append(term)
    return [*found.values()]


def _nodes(term: Term, vectors: int) -> list[int]:
    of_vectors = [p.vector for p in term.places if p.vector is not None]
    return [*of_vectors, *(vectors + u for p in term.places for u in p.units)]


def _least(terms: list[Term], point: Point, tolerance: float) -> tuple[float, float, int]:
    """The least of F, a bound below it, and how many rounds it took; moves the point there."""
    vectors = sorted({p.vector for t in terms for p in t.places if p.vector is not None})
    units = sorted({u for t in terms for p in t.places for u in p.units})
    carried, kept = _carried(terms, vectors, point)
    rounds = 0
    while rounds < _ROUNDS and _surplus(carried, vectors, units, point) > tolerance:
        rounds += 1
        _balance_units(carried, units, point)
        for v in vectors:
            if point.P[v].size:  # Otherwise the infimum is 0 on all of it.
                A = least(*_sides(carried, v, point.weight, point)).A
                point.P[v] = A @ A.T
    value = total(carried, point)
    proved = min(value, _proved(carried, vectors, units, point))
    for v in vectors:
        point.P[v] = kept[v].lifted(point.P[v], _FAR)
    return value, proved, rounds


def _sides(terms: Iterable[Term], v: int, weight_of, point: Point) -> tuple[np.ndarray, np.ndarray]:
    """N and M of a vector: F is tr(N P⁻¹) + tr(M P), and what does not depend on P."""
    found = {e: np.zeros_like(point.P[v]) for e in (-1, 1)}
    for term in terms:
        for side, place in enumerate(term.places):
            if place.vector == v:
                found[place.exponent] += _seen(term, side, weight_of)
    N, M = ((S + S.T) / 2 for S in found.values())
    return N, M


def _flows(terms: Iterable[Term], weight_of, point: Point) -> dict[int, np.ndarray]:
    """The masses that enter every unit (−1) and that leave it (+1)."""
    found = {e: np.zeros_like(point.t) for e in (-1, 1)}
    for term in terms:
        for side, place in enumerate(term.places):
            if place.units:
                mass = _seen(term, side, weight_of) * point.weight(place)
                np.add.at(found[place.exponent], list(place.units), mass)
    return found


@dataclass(frozen=True)
class _Kept:
    """The part V of a vector's space that matters for the infimum. On `grown` P goes to ∞, since
    M is 0 there, on `shrunk` to 0, since N is."""

    V: np.ndarray
    grown: np.ndarray
    shrunk: np.ndarray

    def lifted(self, P: np.ndarray, far: float) -> np.ndarray:
        """P on the whole space, so far out on the rest."""
        scale = np.trace(P) / len(P) if P.size else 1.0
        rest = far * self.grown @ self.grown.T + self.shrunk @ self.shrunk.T / far
        return self.V @ P @ self.V.T + scale * rest


def _carried(
    terms: list[Term], vectors: list[int], point: Point
) -> tuple[list[Term], dict[int, _Kept]]:
    """The terms F′ ≤ F whose least is the infimum of F and is attained.

    Where M is 0 on Z, with V its complement, P⁻¹ ≥ V (VᵀPV)⁻¹ Vᵀ gives
    F(P) ≥ tr(VᵀNV P′⁻¹) + tr(VᵀMV P′) with P′ = VᵀPV, approached as P grows on Z; and so with N, M
    and P, P⁻¹ exchanged. Of a unit that nothing enters, or nothing leaves, nothing remains. What is
    0 is so whatever the other bases are, since these are positive definite. Where it is no 0 but a
    small number that was taken for one, F′ ≤ F all the same.
    """
    kept = {v: _Kept(np.eye(len(P)), *np.zeros((2, len(P), 0))) for v, P in enumerate(point.P)}
    while True:
        before = terms
        flows = _flows(terms, point.weight, point)
        smallest = _ROUNDING * total(terms, point)
        dead = (flows[-1] <= smallest) != (flows[1] <= smallest)
        if dead.any():
            terms = [_cleared(term, dead) for term in terms]
        for v in vectors:
            if not any(S.any() for S in _sides(terms, v, point.weight, point)):
                continue
            for at, name in ((1, "grown"), (0, "shrunk")):
                basis, null = _range(_sides(terms, v, point.weight, point)[at])
                if null.size:
                    terms = [_compressed(term, v, basis) for term in terms]
                    old = kept[v]
                    rest = np.hstack([getattr(old, name), old.V @ null])
                    kept[v] = replace(old, V=old.V @ basis, **{name: rest})
                    point.P[v] = np.eye(basis.shape[1])
        if terms is before:
            return terms, kept


def _range(S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal bases of the range of S ≥ 0 and of its null space."""
    if not S.size:
        return np.zeros((0, 0)), np.zeros((0, 0))
    values, vectors = np.linalg.eigh(S)
    null = values <= _SINGULAR * max(values[-1], 0)
    return vectors[:, ~null], vectors[:, null]


def _compressed(term: Term, v: int, basis: np.ndarray) -> Term:
    """A term with a vector's axes taken to a smaller basis."""
    gram = term.gram
    axes = [] if term.left.vector != v else [0, 1]
    axes += [] if term.right.vector != v else [gram.ndim - 2, gram.ndim - 1]
    for axis in axes:
        gram = np.moveaxis(np.tensordot(gram, basis, (axis, 0)), -1, axis)
    return replace(term, gram=gram)


def _cleared(term: Term, dead: np.ndarray) -> Term:
    gram = term.gram
    if term.left.units:
        alive = ~dead[list(term.left.units)]
        gram = gram * alive.reshape(-1, *(1,) * (gram.ndim - 1))
    if term.right.units:
        gram = gram * ~dead[list(term.right.units)]
    return replace(term, gram=gram)


def _balance_units(terms: list[Term], units: list[int], point: Point) -> None:
    """The least over all units that are only rescaled, vectors held."""
    if not units:
        return
    groups = _groups(terms, units, len(point.t))
    couplings = [_coupling(t, groups, point) for t in terms if t.left.units or t.right.units]
    for name, beta in balance(couplings).beta.items():
        point.t[groups[int(name)]] += 2 * np.log(beta)


def _groups(terms: list[Term], units: list[int], count: int) -> dict[int, np.ndarray]:
    """Units that stand at one end of a term together make a group, as balancing has it."""
    pairs = [(p.units[0], u) for t in terms for p in t.places for u in p.units]
    rows, columns = np.array(pairs, int).reshape(-1, 2).T
    graph = coo_array((np.ones(len(rows), np.int8), (rows, columns)), (count, count))
    of = connected_components(graph, directed=False)[1]
    return {int(g): np.flatnonzero(of == g) for g in np.unique(of[units])}


def _coupling(term: Term, groups: dict[int, np.ndarray], point: Point) -> Coupling:
    """The term's masses summed by unit, vectors contracted."""
    if term.left.units and term.right.units:
        left, right = (point.weight(p) for p in term.places)
        mass = term.gram * left[:, None] * right
    else:
        side = 0 if term.left.units else 1
        mass = _seen(term, side, point.weight) * point.weight(term.places[side])
        mass = mass[:, None] if side == 0 else mass[None]
    names: list[str | None] = []
    for axis, place in enumerate(term.places):
        name, members = next(
            ((str(g), m) for g, m in groups.items() if place.units and place.units[0] in m),
            (None, None),
        )
        names.append(name)
        if members is not None:
            summed = np.zeros((len(members), mass.shape[1 - axis]))
            np.add.at(summed, np.searchsorted(members, place.units), np.moveaxis(mass, axis, 0))
            mass = np.moveaxis(summed, 0, axis)
    return Coupling(names[0], names[1], mass)


def _residuals(terms: list[Term], vectors: list[int], point: Point) -> dict[int, np.ndarray]:
    """M − N of each vector in the basis where its P is the identity: ∇F."""
    found = {}
    for v in vectors:
        if not point.P[v].size:
            continue
        root, back = _roots(point.P[v])
        N, M = _sides(terms, v, point.weight, point)
        found[v] = root @ M @ root - back @ N @ back
    return found


def _roots(P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = np.linalg.eigh(P)
    return (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T


def _surplus(terms: list[Term], vectors: list[int], units: list[int], point: Point) -> float:
    """The largest part of ∇F, against F."""
    whole = total(terms, point)
    if not whole > 0:
        return 0.0
    flows = _flows(terms, point.weight, point)
    of_units = np.abs(flows[1] - flows[-1]).max(initial=0.0)
    of_vectors = [np.abs(R).max(initial=0.0) for R in _residuals(terms, vectors, point).values()]
    return float(max([of_units, *of_vectors]) / whole)


@dataclass
class _Reach:
    """How far e^{εX} can grow from the point without F exceeding its value V there: `vectors[v, ε]`
    bounds the largest eigenvalue of εX_v, `units[ε]` that of each unit."""

    vectors: dict[tuple[int, int], float]
    units: dict[int, np.ndarray]

    def known(self) -> int:
        every = np.concatenate([list(self.vectors.values()), *self.units.values()])
        return int(np.isfinite(every).sum())

    def least_weight(self, place: Place) -> np.ndarray | float:
        """Below e^{εX} at a place."""
        if place.vector is not None:
            return float(np.exp(-self.vectors[place.vector, -place.exponent]))
        if place.units:
            return np.exp(-self.units[-place.exponent][list(place.units)])
        return 1.0


def _reach(terms: list[Term], vectors: list[int], point: Point, value: float) -> _Reach:
    """In bases where the point is the identity: a term is tr(e^{ε_l X_l} G e^{ε_r X_r} Gᵀ), and
    every one is at most V. With e^{ε_r X_r} ≥ e^{−U_r}, U_r ≥ the largest −ε_r X_r, the terms at a
    vector sum to S ≥ 0 with tr(e^{εX} S) ≤ V, so that the largest eigenvalue of εX is at most
    log(V/λ_min(S)). What is held has U = 0, from where bounds spread."""
    count = len(point.t)
    reach = _Reach(
        {(v, e): np.inf for v in vectors for e in (-1, 1)},
        {e: np.full(count, np.inf) for e in (-1, 1)},
    )

    def lowered(place: Place) -> np.ndarray:
        return point.weight(place) * reach.least_weight(place)

    known = -1
    while reach.known() > known:
        known = reach.known()
        with np.errstate(divide="ignore"):
            for v in vectors:
                if not point.P[v].size:
                    continue
                root, back = _roots(point.P[v])
                N, M = _sides(terms, v, lowered, point)
                for e, S in ((-1, back @ N @ back), (1, root @ M @ root)):
                    smallest = max(float(np.linalg.eigvalsh(S)[0]), 0.0)
                    reach.vectors[v, e] = min(reach.vectors[v, e], _beyond(value, smallest))
            for e, mass in _flows(terms, lowered, point).items():
                reach.units[e] = np.minimum(reach.units[e], _beyond(value, mass))
    return reach


def _beyond(value: float, mass):
    """log(V/S), ∞ where S is 0."""
    return np.maximum(np.log(value) - np.log(mass), 0)


def _proved(terms: list[Term], vectors: list[int], units: list[int], point: Point) -> float:
    """A bound below F from any point, close to F where ∇F is small.

    Along the geodesic to any other point, e^{X} in bases where this one is the identity, log F is
    convex: log F(e^X) ≥ log V + Σ tr(X_v R_v)/V, R = ∇F. Only points with F ≤ V matter, and there
    every X_v lies between −U_{v,−1} and U_{v,+1} (`_reach`).
    """
    value = total(terms, point)
    if not 0 < value < np.inf:
        return 0.0
    reach = _reach(terms, vectors, point, value)
    flows = _flows(terms, point.weight, point)
    pairs: list[tuple[np.ndarray, Any, Any]]
    pairs = [(flows[1] - flows[-1], reach.units[-1], reach.units[1])]
    for v, R in _residuals(terms, vectors, point).items():
        eigenvalues = np.linalg.eigvalsh(R)
        pairs.append((eigenvalues, reach.vectors[v, -1], reach.vectors[v, 1]))
    slack = 0.0
    for r, down, up in pairs:
        far = np.where(r > 0, down, up)
        slack += float(np.abs(r[r != 0]) @ far[r != 0])
    return value * float(np.exp(-slack / value))
