"""The bases that a network's function leaves open, and which weight stands between which of them.

A walk finds components of units, tied to one another (`units`); here they may also be dual, so that
one side is changed by the inverse of the other's change, and components that every operation takes
as one vector are mixed by any matrix in GL(h). A weight W from a basis changed by B to one changed
by A becomes A W B⁻¹, and on the dual side A stands for A⁻ᵀ.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from flattest.rescaling.alternation import Place
from flattest.rescaling.units import FIXED, Ends, Units

Labelled = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Bases:
    """`ends` have the number of a component (negative on the dual side, 0 for what is held) at both
    ends of every weight. `vectors` are components that GL(h) mixes, h of them; a dual component by
    itself is a vector of one. All other components are rescaled one by one."""

    ends: dict[str, Ends]
    vectors: tuple[tuple[int, ...], ...]

    def without(self, held: Sequence[int]) -> "Bases":
        """With some components held."""
        gone = np.asarray(held, int)
        ends = {
            name: Ends(
                *(np.where(np.isin(np.abs(e), gone), FIXED, e) for e in (end.target, end.source))
            )
            for name, end in self.ends.items()
        }
        return Bases(ends, tuple(v for v in self.vectors if not set(v) & set(gone.tolist())))

    @cached_property
    def scalars(self) -> tuple[int, ...]:
        """The components that are rescaled one by one."""
        mixed = {c for vector in self.vectors for c in vector}
        sides = [side for end in self.ends.values() for side in (end.target, end.source)]
        found = np.unique(np.abs(np.concatenate([np.ravel(s) for s in sides])))
        return tuple(c for c in found.tolist() if c != FIXED and c not in mixed)


def bases(units: Units, duals: Sequence[Labelled], lists: Sequence[Labelled]) -> Bases:
    """Components of units and duals, mixed where they stand in the same lists under the same
    labels. Where a weight has both ends along one of several axes they are held, and so is what
    leads nowhere: positions and words that the sample does not have."""
    numbers = _numbers(units, duals)
    ends = {n: Ends(numbers[e.target], numbers[e.source]) for n, e in units.ends.items()}
    crossing = [c for end in ends.values() for c in _crossing(end)]
    found = Bases(ends, ()).without([*crossing, *_leading_nowhere(ends)])
    sides = [side for end in found.ends.values() for side in (end.target, end.source)]
    dual = {-c for side in sides for c in np.unique(side).tolist() if c < 0}
    free = {abs(c) for side in sides for c in np.unique(side).tolist()} - {FIXED}
    together: dict[tuple, list[int]] = defaultdict(list)
    for component, signature in _signatures(numbers, lists, free).items():
        together[signature].append(component)
    vectors = [tuple(sorted(c)) for c in together.values() if len(c) > 1 or c[0] in dual]
    return Bases(found.ends, tuple(_oriented(found.ends, vectors, dual)))


def _numbers(units: Units, duals: Sequence[Labelled]) -> np.ndarray:
    """The signed number of each unit's component. Every unit is two nodes, itself and its dual; one
    that is connected with its own dual is held."""
    count = units.count
    pairs = [np.zeros((2, 0), int)]
    for one, other in units.ties:
        pairs += [np.stack([one, other]), np.stack([one, other]) + count]
    for one, other in duals:
        one, other = (np.ravel(a) for a in np.broadcast_arrays(one, other))
        pairs += [np.stack([one, other + count]), np.stack([one + count, other])]
    pairs.append(np.array([[FIXED], [count]]))
    rows, columns = np.concatenate(pairs, axis=1)
    graph = coo_array((np.ones(len(rows), np.int8), (rows, columns)), (2 * count, 2 * count))
    part = connected_components(graph, directed=False)[1]
    itself, dual = part[:count], part[count:]
    held = (itself == dual) | (itself == part[FIXED])
    _, first = np.unique(np.minimum(itself, dual), return_inverse=True)
    sign = np.where(itself < dual, 1, -1)
    # The component of the first unit is positive, so that layers keep their order.
    return np.where(held, FIXED, sign * (first + 1))


def _leading_nowhere(ends: Mapping[str, Ends]) -> list[int]:
    """Components on one side of weights only: changing them would be undone by no weight."""
    into = [e.target for e in ends.values()] + [-e.source for e in ends.values()]
    found = set(np.unique(np.concatenate([np.ravel(side) for side in into])).tolist())
    return sorted({abs(c) for c in found if -c not in found})


def _crossing(end: Ends) -> list[int]:
    """The components of a weight both of whose ends vary along one of several axes."""
    target, source = _axes(end.target, end.source)
    if not set(target) & set(source) or len(target) == len(source) == 1:
        return []
    return [c for side in (end.target, end.source) for c in np.unique(np.abs(side)).tolist() if c]


def _axes(*ends: np.ndarray) -> list[tuple[int, ...]]:
    """The axes along which each end varies."""
    return [
        tuple(a for a in range(end.ndim) if (end != end.take([0], a)).any())
        for end in np.broadcast_arrays(*ends)
    ]


def _signatures(numbers: np.ndarray, lists: Sequence[Labelled], free: set[int]) -> dict[int, tuple]:
    found: dict[int, list] = {c: [] for c in sorted(free)}
    for at, (units, labels) in enumerate(lists):
        here = np.abs(numbers[units])
        components, where = (np.ravel(a) for a in np.broadcast_arrays(here, labels))
        # Units that are taken one by one are told apart by their components.
        own = components if labels is units else where
        for c, label in np.unique(np.stack([components, own]), axis=1).T.tolist():
            if c in found:
                found[c].append((at, label))
    return {c: tuple(signature) for c, signature in found.items()}


def _oriented(ends: Mapping[str, Ends], vectors, dual: set[int]):
    """Vectors that stand at every end whole and on one side; others are taken apart."""
    for vector in vectors:
        if all(_whole(side, vector) for e in ends.values() for side in (e.target, e.source)):
            yield vector
        else:
            yield from ((c,) for c in vector if c in dual)


def _whole(side: np.ndarray, vector: tuple[int, ...]) -> bool:
    here = np.ravel(side)
    here = here[np.isin(np.abs(here), vector)]
    counts = {s: [int((here == s * c).sum()) for c in vector] for s in (1, -1)}
    return all(len(set(count)) == 1 for count in counts.values())


@dataclass(frozen=True)
class Side:
    """The places along some axes of a weight, taken as one, each with the entries that stand there;
    without an axis there is one entry."""

    axes: tuple[int, ...]
    places: tuple[tuple[Place, np.ndarray], ...]


def sides(found: Bases, name: str, shape: Sequence[int]) -> list[tuple[Side, Side]]:
    """What a weight leads to and where it comes from. One that multiplies entry by entry has both
    along one axis, and is taken apart."""
    end = found.ends[name]
    ends = [np.broadcast_to(e, tuple(shape)) for e in (end.target, end.source)]
    target, source = _axes(*ends)
    # One component for all entries.
    if not target and ends[0].any():
        target = tuple(a for a in range(len(shape)) if a not in source)[:1]
    if not source and ends[1].any():
        source = tuple(a for a in range(len(shape)) if a not in target)[:1] or target
    leading, coming = (_along(e, axes) for e, axes in zip(ends, (target, source), strict=True))
    if not set(target) & set(source):
        return [
            (
                Side(target, tuple(_places(found, leading, -1))),
                Side(source, tuple(_places(found, coming, 1))),
            )
        ]
    apart = []
    for i in range(len(leading)):
        ((one, _),) = _places(found, leading[i : i + 1], -1)
        ((other, _),) = _places(found, coming[i : i + 1], 1)
        apart.append((Side(target, ((one, np.array([i])),)), Side((), ((other, np.array([0])),))))
    return apart


def _along(end: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The numbers along these axes, which are all that an end varies along."""
    return end[tuple(slice(None) if a in axes else 0 for a in range(end.ndim))].reshape(-1)


def _places(found: Bases, numbers: np.ndarray, exponent: int) -> list[tuple[Place, np.ndarray]]:
    """Entries by place: those held, those of units, and a vector as often as it stands there."""
    places = []
    if (held := np.flatnonzero(numbers == FIXED)).size:
        places.append((Place(), held))
    scalars = found.scalars
    if (alone := np.flatnonzero(np.isin(numbers, scalars))).size:
        units = np.searchsorted(scalars, numbers[alone]).tolist()
        places.append((Place(units=tuple(units), exponent=exponent), alone))
    for v, vector in enumerate(found.vectors):
        for sign in (1, -1):
            at = np.stack([np.flatnonzero(numbers == sign * c) for c in vector], 1)
            places += [(Place(v, exponent=sign * exponent), rows) for rows in at]
    return places
