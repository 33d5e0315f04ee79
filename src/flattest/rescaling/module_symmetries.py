"""Which changes of basis leave a PyTorch module's function as it is, proposed by a run on a sample.

A unit may be rescaled, as in `modules`; and units that only linear operations touch, each of which
takes them as one vector, may be changed by any invertible matrix: the queries and keys of a head,
its values and outputs, what passes between two linear layers. The walk is that of `modules` with
three things more. Units are *dual* where values are multiplied and summed over them (queries and
keys): one side is changed by A, the other by A⁻ᵀ. Operations *list* the units that they take as
one vector; units that stand in the same lists may be mixed. And what is not known ends no walk: the
units that go into it are held.

The lists of a run are a proposal, not a proof: `flatness.symmetric` tries it on the module itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from flattest.errors import first_line
from flattest.rescaling.module_rules import RULES
from flattest.rescaling.module_uses import address, name_of, tensors_in
from flattest.rescaling.module_walk import (
    Hidden,
    Kind,
    Leaving,
    Memory,
    Rule,
    Walk,
    without_repeats,
)
from flattest.rescaling.symmetries import Bases, bases
from flattest.rescaling.units import EXCHANGED, FIXED, Ends, NotFollowed


def bases_of(
    parameters: Mapping[str, torch.Tensor], x: Any, run: Callable[[Any], torch.Tensor]
) -> tuple[Bases | str, str, list[Any] | None]:
    """The bases that run(x), x being one sample (a batch of one), leaves open, or the reason why
    they cannot be seen; which rescalings may be missing, if any; and what the run looked at where
    that may be another for other samples (`structure_of`)."""
    walk = SymmetryWalk(parameters, x)
    try:
        with torch.enable_grad(), Leaving(walk), walk:
            output = run(x)
    except Exception as error:  # Whatever a user's forward raises for a batch of one.
        return f"it fails on a batch of one ({first_line(error)})", "", None
    walk.output(output)
    if walk.stopped:
        return walk.stopped, "", None
    units = walk.finished()
    seen = walk.seen if walk.branches else None
    return bases(units, walk.duals, walk.lists), units.lost(), seen


class SymmetryWalk(Walk):
    """`duals` are pairs of arrays of units; `lists` pairs of units and labels: units with the same
    labels in all lists are taken as one vector."""

    def __init__(self, parameters: Mapping[str, torch.Tensor], x: Any):
        super().__init__(parameters, x, _RULES)
        self.duals: list[tuple[np.ndarray, np.ndarray]] = []
        self.lists: list[tuple[np.ndarray, np.ndarray]] = []
        # Weights that stay as they are, with the reason.
        self.again: dict[str, str] = {}

    def follow(self, func, kind: Kind, result, args, kwargs, given) -> None:
        try:
            super().follow(func, kind, result, args, kwargs, given)
        except NotFollowed as stop:
            self.hold(result, args, kwargs, str(stop))
        if name_of(func).removesuffix("_") not in _AS_VECTORS and not func.is_view:
            for t in tensors_in((result, args, kwargs)):
                if self.kind(t) == Kind.HIDDEN:
                    self.one_by_one(self.hidden(t).units)

    def made(self) -> tuple[int, ...]:
        return self.units.made, len(self.lists)

    def keep(self, step, used: np.ndarray) -> None:
        """What nothing uses takes no units one by one."""
        super().keep(step, used)
        if not used.any():
            start, stop = step.made[1]
            nothing = np.zeros(0, int)
            self.lists[start:stop] = [(nothing, nothing)] * (stop - start)

    def hold(self, result, args, kwargs, reason: str) -> None:
        """What is not known: nothing that goes in is changed, which may lose symmetries."""
        for t in tensors_in((args, kwargs)):
            if self.kind(t) == Kind.HIDDEN:
                self.units.pin(self.hidden(t).units, reason)
            elif self.kind(t) == Kind.WEIGHT:
                slots = self.memory[address(t)].slots
                self.use_again({slot.name for slot in slots}, reason)
        for t in tensors_in(result):
            if self.kind(t) != Kind.WEIGHT and t.numel():
                self.write(t, Hidden(np.full(tuple(t.shape), FIXED), frozenset()))

    def write(self, t: torch.Tensor, found: Hidden | Kind | Memory) -> None:
        """Which weights a value depends on does not matter: those used again are tied."""
        super().write(t, Hidden(found.units, frozenset()) if isinstance(found, Hidden) else found)

    def view(self, t: torch.Tensor, held: Memory) -> np.ndarray:
        """Statistics, and numbers that are read as others, are held."""
        try:
            return super().view(t, held)
        except NotFollowed as stop:
            if held.units is not None:
                self.units.pin(held.units.numpy(), str(stop))
            return np.full(tuple(t.shape), FIXED)

    def weigh_again(self, name: str, ends: Ends) -> None:
        """What a weight stands between is changed alike wherever it is used."""
        before = self.whole[name]
        self.units.tie(before.target, ends.target)
        self.units.tie(before.source, ends.source)

    def weigh(self, t: torch.Tensor, target, source) -> None:
        """A weight that is used in parts, and these more than once, stays as it is."""
        name = self.slot(t).name
        self.lists += [(np.asarray(end), np.zeros(1, int)) for end in (target, source)]
        try:
            super().weigh(t, target, source)
        except NotFollowed as stop:
            self.use_again({name}, str(stop))
        if name in self.again:
            self.pin_ends(target, source, self.again[name])

    def use_again(self, names: set[str], reason: str) -> None:
        for name in names:
            self.again.setdefault(name, reason)
            for end in (self.whole.get(name), self.parts.get(name)):
                if end is not None:
                    self.pin_ends(end.target, end.source, reason)

    def pin_ends(self, target, source, reason: str) -> None:
        for end in (target, source):
            self.units.pin(np.asarray(end), reason)

    # What rules do with units.

    def kind_of(self, value) -> Kind:
        return self.kind(value) if isinstance(value, torch.Tensor) else Kind.CONSTANT

    def one_by_one(self, units: np.ndarray) -> None:
        self.lists.append((units, units))

    def taken_with(self, units: np.ndarray, factor) -> None:
        """Units of a vector have the same factor: a constant one by its value, others by place."""
        if not isinstance(factor, torch.Tensor) or factor.numel() == 1:
            return
        spread = factor.detach().expand(units.shape)
        if self.kind(factor) == Kind.CONSTANT:
            _, labels = np.unique(spread.cpu().numpy(), return_inverse=True)
        else:
            own = without_repeats(spread)
            labels = np.broadcast_to(np.arange(own.numel()).reshape(own.shape), units.shape)
        self.lists.append((units, labels.reshape(units.shape)))


def _multiplied(walk: SymmetryWalk, func, out, one, other, **kwargs):
    """Entry by entry, or divided: where both factors could be changed, the second is held."""
    kinds = walk.kind_of(one), walk.kind_of(other)
    if kinds == (Kind.HIDDEN, Kind.HIDDEN):
        return _of_two_values(walk, func, out, one, other)
    found = RULES[name_of(func).removesuffix("_")](walk, func, out, one, other, **kwargs)
    if not isinstance(found, Hidden):
        return found
    if min(kinds) >= Kind.HIDDEN:
        for t in (one, other):
            walk.one_by_one(walk.hidden(t).units if walk.kind(t) == Kind.HIDDEN else found.units)
    else:
        walk.taken_with(found.units, other if kinds[0] >= Kind.HIDDEN else one)
    return found


def _of_two_values(walk: SymmetryWalk, func, out, one, other):
    first, second = walk.hidden(one), walk.hidden(other)
    kept, factor = (first, other), second
    if not name_of(func).startswith("div") and walk.units.held(first.units):
        kept, factor = (second, one), first
    walk.units.pin(factor.units, EXCHANGED)
    units = np.broadcast_to(kept[0].units, tuple(out.shape))
    walk.taken_with(units, kept[1])
    return Hidden(units, first.depends | second.depends)


def _powered(walk: SymmetryWalk, func, out, x, *args, **kwargs):
    found = walk.hidden(x)
    walk.units.pin(found.units)
    return Hidden(np.full(tuple(out.shape), FIXED), found.depends)


def _layer_norm(walk: SymmetryWalk, func, out, x, shape, weight, bias, *settings):
    """What goes in is held at the scale it has; what comes out has units where it has weights."""
    found = walk.hidden(x)
    walk.units.pin(found.units)
    trained = [p for p in (weight, bias) if p is not None and walk.depends(p)]
    if not trained or (bias is not None and len(trained) < 2):
        return Hidden(np.full(tuple(out.shape), FIXED), found.depends)
    target = walk.units.new(*shape)
    for p in trained:
        walk.weigh(p, target, FIXED)
    return Hidden(np.broadcast_to(target, tuple(out.shape)), found.depends)


def _rms_norm(walk: SymmetryWalk, func, out, x, shape, weight=None, *settings):
    return _layer_norm(walk, func, out, x, shape, weight, None)


def _matrix_product(walk: SymmetryWalk, func, out, one, other):
    """Where both are values: one is held and the other goes through, matrix by matrix; or neither
    is, and they are dual along what is summed over."""
    if not (walk.kind(one) == walk.kind(other) == Kind.HIDDEN and one.dim() == other.dim() > 1):
        found = RULES[name_of(func)](walk, func, out, one, other)
        _by_matrix(walk, *(t for t in (one, other) if walk.kind(t) == Kind.HIDDEN))
        return found
    first, second = (_matrices(walk.hidden(t).units) for t in (one, other))
    depends = walk.hidden(one).depends | walk.hidden(other).depends
    shape = first.shape[0], first.shape[1], second.shape[2]
    _by_matrix(walk, one, other)
    if walk.units.held(first):
        walk.units.pin(first, EXCHANGED)
        units = np.broadcast_to(walk.tied(second, (1,)), shape)
    elif walk.units.held(second):
        walk.units.pin(second, EXCHANGED)
        units = np.broadcast_to(walk.tied(first, (2,)), shape)
    else:
        left, right = walk.tied(first, (1,)), walk.tied(second, (2,))
        walk.duals.append((left[:, 0, :], right[:, :, 0]))
        # The scale that both have together is held, which nothing but what follows may ask for.
        scale = walk.units.new(shape[0], 1, 1)
        walk.units.pin(scale, EXCHANGED)
        units = np.broadcast_to(scale, shape)
    return Hidden(units.reshape(tuple(out.shape)), depends)


def _matrices(units: np.ndarray) -> np.ndarray:
    return units if units.ndim == 3 else units[None]


def _by_matrix(walk: SymmetryWalk, *values: torch.Tensor) -> None:
    """Units of different matrices of a batch are not mixed."""
    for t in values:
        if t.dim() == 3 and len(t) > 1:
            walk.lists.append((walk.hidden(t).units, np.arange(len(t)).reshape(-1, 1, 1)))


def _batched_sum(walk: SymmetryWalk, func, out, bias, one, other, **kwargs):
    """bias + one · other of batches."""
    if not (walk.kind(one) == walk.kind(other) == Kind.HIDDEN):
        return RULES[name_of(func)](walk, func, out, bias, one, other, **kwargs)
    raise NotFollowed("it adds to a product of two of its values")


_RULES: dict[str, Rule] = {
    **RULES,
    **dict.fromkeys(("mul", "div"), _multiplied),
    **dict.fromkeys(("sqrt", "rsqrt", "pow", "square", "reciprocal"), _powered),
    "native_layer_norm": _layer_norm,
    "_fused_rms_norm": _rms_norm,
    **dict.fromkeys(("mm", "bmm"), _matrix_product),
    **dict.fromkeys(("addmm", "baddbmm"), _batched_sum),
}

# Operations that take vectors of units as such, or whose rule says what they take one by one.
_VECTORS = """
neg clone _unsafe_view _to_copy contiguous positive lift_fresh add sub rsub sum mean cumsum copy cat
stack index_select index gather flip roll repeat embedding mm bmm mv dot addmm baddbmm addmv mul div
convolution constant_pad_nd zeros_like ones_like empty_like full_like new_zeros new_ones new_empty
new_full avg_pool1d avg_pool2d adaptive_avg_pool1d _adaptive_avg_pool2d
"""
_AS_VECTORS = frozenset(_VECTORS.split())
