"""Which hidden units a network's function lets us rescale, and the masses between them.

A walk over a network gives every entry of every hidden value a unit, numbered from 1; 0 stands for
what cannot be rescaled (inputs, outputs, constants). Where two entries must scale together (they
are added, pooled, or channels of one convolution) their units are tied. Every weight entry then has
a target and a source: rescaling what unit u gives out by β_u turns it into
W · β_target / β_source, and its diagonal entry H of ∇²L into H · (β_source / β_target)².
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from flattest.rescaling.balancing import Balance, Coupling, balance

FIXED = 0
DEGENERATE = (
    "the units behind {} are scale-invariant: enlarging the weights that feed it flattens without "
    "limit and without changing the function, so the infimum is degenerate"
)
EXCHANGED = (
    "it multiplies two of its values, one of which may be scaled up and the other down; such "
    "rescalings are not followed"
)
SHARED = "one of its weights scales several units, whose rescalings are not followed"
WINDOWS = "it pools units of their own scales, whose rescalings are not followed"
SPARSE = "it multiplies by a matrix with zeros, behind which rescalings are not followed"
ROWS = "one weight meets units of several scales, whose rescalings are not followed"
ZEROS = (
    "what is added to its units is 0 for a sample and may not be for others; such rescalings are "
    "not followed"
)
PARTLY = (
    "only part of a result is used; units that feed only the unused part may be rescalable, which "
    "was not followed"
)
ANOTHER_BRANCH = "it takes another branch for other samples"
BRANCH = "its data choose between values and constants; such rescalings are not followed"
# How an entry is used by what follows: not, perhaps (that was not followed) or surely.
UNUSED, PERHAPS, USED = 0, 1, 2
# Entries this small against the whole are rounding errors of either sign.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Ends:
    """Target and source unit of each entry of a weight; both broadcast to the weight's shape."""

    target: np.ndarray
    source: np.ndarray


@dataclass(frozen=True)
class _Tie:
    """Units that scale together, pair by pair. `losing` says what may be lost where a rule made it
    for want of a better one; `of_entries` of an operation's result each pair is for one (its shape,
    the axes along which pairs are the same, and which of the entries have a pair)."""

    one: np.ndarray
    other: np.ndarray
    losing: str = ""
    of_entries: tuple[tuple[int, ...], tuple[int, ...], np.ndarray] | None = None

    def needed(self, used: np.ndarray) -> list["_Tie"]:
        """What it is where entries of the result are `used` so: for those that are only perhaps
        it may lose rescalings."""
        if self.of_entries is None or self.of_entries[0] != used.shape:
            return [replace(self, losing=self.losing or PARTLY)] if used.any() else []
        _, repeated, differ = self.of_entries
        levels = np.asarray(used.max(axis=repeated, keepdims=True))[differ]
        sure = self._of(levels == USED, self.losing)
        return [sure, self._of(levels == PERHAPS, self.losing or PARTLY)]

    def _of(self, chosen: np.ndarray, losing: str) -> "_Tie":
        return _Tie(self.one[chosen], self.other[chosen], losing)


@dataclass
class Units:
    """Numbers units, collects the ties between them and the ends of every weight."""

    ends: dict[str, Ends] = field(default_factory=dict)
    _count: int = 1
    _ties: list[_Tie] = field(default_factory=list)
    # Those of constants 0.
    _zeros: list[np.ndarray] = field(default_factory=list)
    # Which units these are, and how many of the arrays it has noted.
    _known: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    _noted: int = 0

    def new(self, *shape: int) -> np.ndarray:
        """Fresh units in an array of this shape."""
        size = int(np.prod(shape))
        self._count += size
        return np.arange(self._count - size, self._count).reshape(shape)

    def zeros(self, count: int) -> np.ndarray:
        """Units of constants 0, which scale with anything."""
        self._zeros.append(self.new(count))
        return self._zeros[-1]

    def are_zeros(self, units: np.ndarray) -> np.ndarray:
        """Which of these stand for constants 0."""
        if not self._zeros:
            return np.full(units.shape, False)
        if len(self._known) < self._count:
            more = np.full(2 * self._count - len(self._known), False)
            self._known = np.concatenate([self._known, more])
        for zeros in self._zeros[self._noted :]:
            self._known[zeros] = True
        self._noted = len(self._zeros)
        return self._known[units]

    def read(self, units: np.ndarray) -> np.ndarray:
        """The same, but a 0 is another wherever it goes: two values that scale with it need not
        scale with one another."""
        return self.cut(units, self.are_zeros(units))

    def cut(self, units: np.ndarray, zero: np.ndarray) -> np.ndarray:
        """The same, but constants 0 in these places."""
        if not zero.any():
            return units
        units = units.copy()
        units[zero] = self.zeros(int(zero.sum()))
        return units

    def first(self, units: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        """Of units along `axes` one that stands for all, which no constant 0 does for others."""
        least = units.min(axis=axes, keepdims=True)
        if not (zero := self.are_zeros(units)).any():
            return least
        other = np.where(zero, self._count, units).min(axis=axes, keepdims=True)
        return np.where(other < self._count, other, least)

    def either(self, units: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Units of a sum: the first, or the other where the first stand for constants 0."""
        return np.where(self.are_zeros(units), other, units)

    def mixed(self, units: np.ndarray, by: np.ndarray) -> np.ndarray:
        """Units (B, I, K) of a product with matrices (B, K, J), which are not 0 where `by`: those
        that meet in an entry scale together, and where all factors are 0 there is 0."""
        count, rows, columns = by.shape
        batch, k, j = np.nonzero(by)
        start = batch * (rows + columns)
        pairs = [(start + k, start + rows + j)]
        of = _connected(count * (rows + columns), pairs).reshape(count, -1)
        here, there = of[:, None, :rows], of[:, None, rows:]
        # For each set of units that meet, and each row, one that stands for all.
        zero = self.are_zeros(units)
        last = np.iinfo(units.dtype).max
        stands = np.full((units.shape[1], of.max() + 1), last)
        for free in (np.where(zero, last, units), units):
            least = np.full_like(stands, last)
            for b in range(count):
                np.minimum.at(least.T, here[b, 0], free[b].T)
            stands = np.where(stands < last, stands, least)
        row = np.arange(units.shape[1])[:, None]
        self.tie(units, stands[row, here])
        found = stands[row, there]
        return self.cut(np.where(found < last, found, FIXED), found == last)

    def tie(self, one, other, losing: str = "", by_entry: bool = False) -> None:
        """The entries of both arrays, after broadcasting, scale together; or are held so where they
        need not, `losing` rescalings. `by_entry`: each for that entry of an operation's result."""
        one, other = np.broadcast_arrays(one, other)
        repeated = [a == b == 0 for a, b in zip(one.strides, other.strides, strict=True)]
        once = tuple(slice(1) if r else slice(None) for r in repeated)
        shape, axes = one.shape, tuple(axis for axis, r in enumerate(repeated) if r)
        one, other = one[once], other[once]
        if not (differ := one != other).any():
            return
        of_entries = (shape, axes, differ) if by_entry else None
        self._ties.append(_Tie(one[differ], other[differ], losing, of_entries))

    def pin(self, units, losing: str = "", by_entry: bool = False) -> None:
        """These units cannot be rescaled, or are held so."""
        self.tie(units, FIXED, losing, by_entry)

    @property
    def made(self) -> int:
        """How many ties there are."""
        return len(self._ties)

    def keep(self, start: int, stop: int, used: np.ndarray) -> None:
        """Of the ties from `start` on that an operation made those that are needed where entries of
        its result are `used` so. Operations are to be told from the last to the first."""
        if not (used == USED).all():
            kept = (tie.needed(used) for tie in self._ties[start:stop])
            self._ties[start:stop] = [tie for ties in kept for tie in ties]

    def held(self, units: np.ndarray) -> bool:
        """Whether none of these can be rescaled."""
        fixed = self.components()[units] == FIXED
        return bool((fixed | self.are_zeros(units)).all())

    def lost(self) -> str:
        """Which rescalings may be missing, if any: where units are held together that nothing else
        ties, and not by constants 0 alone."""
        of = _connected(self._count, [(t.one, t.other) for t in self._ties if not t.losing])
        together, counted = self.components(), np.full(self._count, True)
        for zeros in self._zeros:
            counted[zeros] = False
        apart = np.unique(np.stack([together[counted], of[counted]]), axis=1)[0]
        several = np.bincount(apart, minlength=self._count) > 1
        losing = (
            t.losing
            for t in self._ties
            if t.losing and ((of[t.one] != of[t.other]) & several[together[t.one]]).any()
        )
        return next(losing, "")

    @property
    def count(self) -> int:
        """How many units there are, with the one that stands for what is fixed."""
        return self._count

    @property
    def ties(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(tie.one, tie.other) for tie in self._ties]

    def components(self) -> np.ndarray:
        """For each unit, the number of the set of units it is tied to; 0 for what is fixed."""
        found = _connected(self._count, self.ties)
        # Numbered by first appearance, so that unit 0 is in component 0.
        _, first, component = np.unique(found, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[component]


def layerwise(units: Units) -> Units:
    """The same network with one factor for all units of a layer (those at one end of a weight)."""
    found, component = copy.deepcopy(units), units.components()
    for end in units.ends.values():
        for side in (end.target, end.source):
            free = np.unique(side[component[side] != FIXED])
            found.tie(free[:-1], free[1:])
    return found


def _connected(count: int, pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The number of the connected component of each of `count` nodes, given edges."""
    rows, columns = np.concatenate([np.zeros((2, 0), int), *map(np.stack, pairs)], axis=1)
    graph = coo_array((np.ones(len(rows), np.int8), (rows, columns)), (count, count))
    return connected_components(graph, directed=False)[1]


class NotFollowed(Exception):
    """A network has an operation whose effect on derivatives or scales is not known."""


@dataclass(frozen=True)
class Structure:
    """What a walk over a network found.

    `exact`: Tr ∇²L is the trace of its Gauss–Newton part, because f is affine in every single
    weight on each linear piece; `reason` says why not. `units` are the rescalings, or a sentence
    why they are not known. `entries` counts the values of all layers for one sample.
    """

    units: Units | str
    exact: bool = True
    reason: str = ""
    notes: tuple[str, ...] = ()
    entries: int = 1


@dataclass(frozen=True)
class Flattest:
    """The least trace over rescalings, the factor of each weight and the trace of each there.

    `constant` is what no rescaling changes. `value` is an infimum; `attained` is the trace at these
    factors, which exceeds it where a unit's mass can only be driven to 0 in the limit.
    """

    balance: Balance
    constant: float
    factors: dict[str, np.ndarray]
    per_layer: dict[str, float]

    @property
    def value(self) -> float:
        return self.balance.value + self.constant

    @property
    def lower_bound(self) -> float:
        return self.balance.lower_bound + self.constant

    @property
    def attained(self) -> float:
        return sum(self.per_layer.values())


class Unbounded(Exception):
    """Some weight that rescalings change has a negative diagonal entry."""


def flattest(units: Units, diagonal: Mapping[str, np.ndarray]) -> Flattest:
    """Balances the diagonal of ∇²L, given by weight, over all rescalings of `units`."""
    component = units.components()
    ends = {
        name: Ends(component[end.target], component[end.source]) for name, end in units.ends.items()
    }
    masses = {name: _moving(diagonal[name], end) for name, end in ends.items()}
    if any((mass < 0).any() for mass in masses.values()):
        raise Unbounded
    groups = _groups(ends, component.max() + 1)
    couplings = [c for name, end in ends.items() for c in _couplings(masses[name], end, groups)]
    found = balance(couplings)
    beta = np.ones(component.max() + 1)
    for name, values in found.beta.items():
        beta[groups.of == int(name)] = values
    factors = {name: beta[end.target] / beta[end.source] for name, end in ends.items()}
    per_layer = {name: float(np.sum(diagonal[name] / factors[name] ** 2)) for name in ends}
    # Summed by itself: the whole trace less what moves would have the whole's rounding error, and
    # rescalings make the whole as large as they like. So would the entries that `_moving` takes
    # for rounding errors, which are left out.
    constant = sum(
        float(np.sum(diagonal[name], where=end.target == end.source)) for name, end in ends.items()
    )
    return Flattest(found, constant, factors, per_layer)


def _moving(entries: np.ndarray, end: Ends) -> np.ndarray:
    """The entries that rescalings change, 0 elsewhere and where rounding made them negative."""
    scale = np.abs(entries).max(initial=0)
    clean = np.where((entries < 0) & (entries > -_ROUNDING * scale), 0.0, entries)
    return np.where(end.target != end.source, clean, 0.0)


@dataclass(frozen=True)
class _Groups:
    """Components that occur at one end of a weight together make a group, as balancing has it.

    The last size, that of group −1, is the 1 of what is fixed.
    """

    of: np.ndarray
    position: np.ndarray
    sizes: np.ndarray


def _groups(ends: Mapping[str, Ends], count: int) -> _Groups:
    sides = [side for end in ends.values() for side in (end.target, end.source)]
    free = [np.unique(side[side != FIXED]) for side in sides]
    of = _connected(count, [(side[:-1], side[1:]) for side in free])
    sizes = np.bincount(of)
    order = np.argsort(of, kind="stable")
    position = np.empty(count, int)
    position[order] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return _Groups(of, position, np.append(sizes, 1))


def _couplings(mass: np.ndarray, end: Ends, groups: _Groups) -> list[Coupling]:
    """The masses of one weight summed by component, for each pair of groups it connects."""
    couplings = []
    target, rows = _by_group(end.target, groups)
    source, columns = _by_group(end.source, groups)
    for b in np.unique(target):
        for a in np.unique(source):
            height, width = groups.sizes[b], groups.sizes[a]
            chosen = np.broadcast_to((target == b) & (source == a), mass.shape)
            place = np.broadcast_to(rows * width + columns, mass.shape)
            total = np.bincount(place[chosen], mass[chosen], minlength=height * width)
            couplings.append(Coupling(_name(b), _name(a), total.reshape(height, width)))
    return couplings


def _by_group(components: np.ndarray, groups: _Groups) -> tuple[np.ndarray, np.ndarray]:
    """Group (−1 for what is fixed) and position in it."""
    fixed = components == FIXED
    return (
        np.where(fixed, -1, groups.of[components]),
        np.where(fixed, 0, groups.position[components]),
    )


def _name(group: int) -> str | None:
    return None if group == -1 else str(group)
