"""What a PyTorch module computes, seen in a run on a sample: is f affine in every single weight on
each linear piece, and which hidden units can be rescaled?

The module is run as it is, and every operation on tensors passes by (`TorchDispatchMode`), whatever
Python code called it. Beside the memory of every tensor stands an array of unit numbers (see
`units`), one for each entry, so that views and work in place need no rules: they read and write the
same memory. An operation whose result is new memory has a rule in `RULES`; one that is missing
there ends the walk (`NotFollowed`), and so does whatever hides a dependence from autograd.

A sample stands for all where nothing else can happen for another one: Python code that looks at a
tensor's value may branch by it, so `Seen` records those values, to be compared on all the data.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from flattest.errors import first_line
from flattest.rescaling.units import DEGENERATE, FIXED, Ends, NotFollowed, Structure, Units


class Kind(IntEnum):
    """What the memory of a tensor holds: something independent of samples and parameters; what
    depends on the sample alone; what is locally constant (masks such as h > 0); values that depend
    on parameters; entries of parameters."""

    CONSTANT = 0
    VARIES = 1
    STEPS = 2
    HIDDEN = 3
    WEIGHT = 4


class Hidden(NamedTuple):
    """Units of the entries, and the parameters that they depend on: affine in each single weight of
    these, on every linear piece."""

    units: np.ndarray
    depends: frozenset[str]


class _Slot(NamedTuple):
    """Where in a piece of memory the entries of a parameter begin, as the parameter has them."""

    name: str
    start: int


@dataclass
class _Memory:
    kind: Kind
    units: torch.Tensor | None = None
    depends: frozenset[str] = frozenset()
    slots: list[_Slot] = field(default_factory=list)


@dataclass
class _DenseEnds:
    """Ends of a parameter that is used in parts, entry by entry in the order of its memory."""

    target: torch.Tensor
    source: torch.Tensor
    used: torch.Tensor


def structure_of(
    parameters: Mapping[str, torch.Tensor], x: Any, run: Callable[[Any], torch.Tensor]
) -> tuple[Structure, list[Any] | None]:
    """Walks run(x), x being one sample (a batch of one). Where the run looked at values that may be
    others for other samples, all that it looked at comes second: the structure is that of runs that
    see the same (`Seen`)."""
    walk = Walk(parameters, x)
    try:
        with torch.enable_grad(), Leaving(walk), walk:
            output = run(x)
    except Exception as error:  # Whatever a user's forward raises for a batch of one.
        walk.stopped = f"it fails on a batch of one ({first_line(error)})"
    else:
        walk.output(output)
    if walk.stopped:
        reason = walk.reason or walk.stopped
        return Structure(walk.stopped, exact=False, reason=reason, entries=walk.entries), None
    notes = tuple(dict.fromkeys(walk.notes))
    found = Structure(walk.finished(), not walk.reason, walk.reason, notes, walk.entries)
    return found, walk.seen if walk.branches else None


class Seen(TorchDispatchMode):
    """Records the values that Python code looks at: where a run branches, it does by these."""

    def __init__(self):
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, torch.Tensor) and _name(func) in _LOOKS:
            self.seen.append(result)
        return result

    def left(self, t: torch.Tensor) -> None:
        with torch._C.DisableTorchFunctionSubclass():
            self.seen.append(t.detach().tolist())


class Leaving(TorchFunctionMode):
    """Tells `watched` of the numbers that leave tensors without an operation on them (`tolist`,
    `numpy`): Python code may branch by them, or compute with them."""

    def __init__(self, watched: "Seen"):
        super().__init__()
        self.watched = watched

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in _LEAVES:
            self.watched.left(args[0])
        return result


class Walk(Seen):
    """Collects the units, why the network is not piecewise linear, and how many values it has."""

    def __init__(self, parameters: Mapping[str, torch.Tensor], x: Any):
        super().__init__()
        self.parameters, self.units = parameters, Units()
        self.reason, self.stopped, self.entries = "", "", 1
        self.notes: list[str] = []
        # Whether Python code looked at a value that may be another for another sample.
        self.branches = False
        self.whole: dict[str, Ends] = {}
        self.parts: dict[str, _DenseEnds] = {}
        # Memory is known by its address, which is not given to another while its tensor lives.
        self.alive: list[torch.Tensor] = []
        self.memory: dict[int, _Memory] = {}
        for name, p in parameters.items():
            held = self.memory.setdefault(_address(p), _Memory(Kind.WEIGHT))
            held.slots.append(_Slot(name, p.storage_offset()))
        for t in tree_leaves(x):
            if isinstance(t, torch.Tensor):
                self.memory[_address(t)] = _Memory(Kind.VARIES)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        known = _tensors((args, kwargs))
        hidden = all(t.requires_grad for t in known if self.kind(t) >= Kind.HIDDEN)
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.entries += sum(t.numel() for t in _tensors(result))
        kind = max(map(self.kind, known), default=Kind.CONSTANT)
        if self.stopped or kind == Kind.CONSTANT:
            return result
        try:
            if kind >= Kind.HIDDEN and not (hidden and torch.is_grad_enabled()):
                raise NotFollowed("it hides a dependence on its weights from autograd")
            if not isinstance(result, torch.Tensor) and _name(func) in _LOOKS:
                self.look(kind)
            else:
                self.follow(func, kind, result, args, kwargs)
        except NotFollowed as stop:
            # Not raised: a user's code might catch it, and the values are still to be counted.
            self.stopped = str(stop)
        self.alive += _tensors(result)
        return result

    def left(self, t: torch.Tensor) -> None:
        super().left(t)
        if self.stopped or (kind := self.kind(t)) == Kind.CONSTANT:
            return
        try:
            self.look(kind)
        except NotFollowed as stop:
            self.stopped = str(stop)

    def look(self, kind: Kind) -> None:
        if kind >= Kind.HIDDEN:
            raise NotFollowed("it reads the value of a tensor that depends on its weights")
        self.branches = True

    def follow(self, func, kind: Kind, result, args, kwargs) -> None:
        """Notes what the memory of the results holds."""
        name, outputs = _name(func), _tensors(result)
        if func._schema.is_mutable:
            self.follow_in_place(func, kind, result, args, kwargs)
            return
        known = {_address(t) for t in _tensors((args, kwargs))}
        if not (fresh := [t for t in outputs if t.numel() and _address(t) not in known]):
            return
        if kind < Kind.HIDDEN:
            self.memory.update((_address(t), _Memory(kind)) for t in fresh)
            return
        first, *others = outputs
        found = self.ruled(name)(self, func, first, *args, **kwargs)
        self.write(first, found)
        for other in others:
            # Positions of maxima are steps; statistics and the like are not followed further.
            held = _Memory(Kind.STEPS) if not other.is_floating_point() else _Memory(Kind.HIDDEN)
            self.memory[_address(other)] = held

    def follow_in_place(self, func, kind: Kind, result, args, kwargs) -> None:
        name, target = _name(func), args[0]
        if not name.endswith("_") or not isinstance(result, torch.Tensor):
            raise NotFollowed(f"its operation {name} is not known")
        held = self.memory.get(_address(target))
        if held and held.kind == Kind.WEIGHT:
            raise NotFollowed("it changes its weights as it runs")
        if kind < Kind.HIDDEN:
            self.memory[_address(target)] = _Memory(kind)
            return
        found = self.ruled(name[:-1])(self, func, result, *args, **kwargs)
        self.write(result, found)

    def ruled(self, name: str) -> "Rule":
        if (rule := RULES.get(name)) is None:
            raise NotFollowed(f"its operation {name.strip('_')} is not known")
        return rule

    # What the memory of a tensor holds.

    def kind(self, t: torch.Tensor) -> Kind:
        held = self.memory.get(_address(t))
        return held.kind if held and t.numel() else Kind.CONSTANT

    def write(self, t: torch.Tensor, found: "Hidden | Kind | _Memory") -> None:
        address = _address(t)
        if isinstance(found, _Memory):
            self.memory[address] = found
            return
        if isinstance(found, Kind):
            held = self.memory.get(address)
            if held is None or held.kind < Kind.HIDDEN:
                self.memory[address] = _Memory(found)
            else:
                self.view(t, held)[...] = FIXED
            return
        held = self.memory.get(address)
        if held is None or held.units is None:
            size = t.untyped_storage().nbytes() // t.element_size()
            held = _Memory(Kind.HIDDEN, torch.full((size,), FIXED))
            self.memory[address] = held
        held.depends |= found.depends
        self.view(t, held)[...] = found.units

    def view(self, t: torch.Tensor, held: _Memory) -> np.ndarray:
        """The units of a tensor's entries, in its shape."""
        if held.units is None:
            raise NotFollowed("it uses statistics of its values")
        size = t.untyped_storage().nbytes() // t.element_size()
        if len(held.units) != size or t.is_complex():
            raise NotFollowed("it reads its values as numbers of another type")
        return held.units.as_strided(t.size(), t.stride(), t.storage_offset()).numpy()

    def hidden(self, t: torch.Tensor) -> Hidden:
        """What depends on parameters. A weight that stands alone is a bias: units of its own, fed
        by a constant; constants are fixed."""
        kind = self.kind(t)
        if kind < Kind.HIDDEN:
            return Hidden(np.full(tuple(t.shape), FIXED), frozenset())
        held = self.memory[_address(t)]
        if kind == Kind.HIDDEN:
            return Hidden(self.view(t, held), held.depends)
        own = _without_repeats(t)
        units = self.units.new(*own.shape)
        self.weigh(own, units, FIXED)
        return Hidden(np.broadcast_to(units, tuple(t.shape)), frozenset({self.slot(t).name}))

    def placed(self, t: torch.Tensor) -> Hidden:
        """As `hidden`, for entries that are moved about: a constant 0 scales with anything."""
        if self.kind(t) != Kind.CONSTANT:
            return self.hidden(t)
        units = np.full(tuple(t.shape), FIXED)
        zero = (t == 0).numpy()
        units[zero] = self.units.new(int(zero.sum()))
        return Hidden(units, frozenset())

    def output(self, value: torch.Tensor) -> None:
        if self.stopped:
            return
        try:
            if self.kind(value) < Kind.HIDDEN:
                raise NotFollowed("its outputs do not depend on its parameters")
            if not value.requires_grad or _has_own_derivatives(value):
                raise NotFollowed("it has derivatives of its own (a torch.autograd.Function)")
            self.units.pin(self.hidden(value).units)
        except NotFollowed as stop:
            self.stopped = str(stop)

    # Weights.

    def slot(self, t: torch.Tensor) -> _Slot:
        """The parameter that a view belongs to."""
        slots = self.memory[_address(t)].slots
        at = t.storage_offset()
        found = [s for s in slots if 0 <= at - s.start < max(1, self.parameters[s.name].numel())]
        if len(found) != 1:
            raise NotFollowed("its parameters share their memory")
        return found[0]

    def weigh(self, t: torch.Tensor, target, source) -> None:
        """Notes between which units the entries of a weight stand; both broadcast to its shape."""
        slot = self.slot(t)
        p = self.parameters[slot.name]
        target, source = (np.asarray(end) for end in (target, source))
        axes = _axes_of(p, t)
        if axes is not None and slot.name not in self.parts:
            if slot.name in self.whole:
                raise NotFollowed(f"{slot.name} is used more than once")
            ends = (_transposed(end, axes, t.dim()) for end in (target, source))
            self.whole[slot.name] = Ends(*ends)
            return
        if slot.name in self.whole:
            raise NotFollowed(f"{slot.name} is used more than once")
        self.weigh_part(t, slot, p, target, source)

    def weigh_part(self, t, slot: _Slot, p, target, source) -> None:
        if (dense := self.parts.get(slot.name)) is None:
            size = 1 + sum((n - 1) * s for n, s in _layout(p))
            target_units, source_units = torch.full((2, size), FIXED)
            used = torch.zeros(size, dtype=torch.bool)
            dense = self.parts[slot.name] = _DenseEnds(target_units, source_units, used)
        place = (t.size(), t.stride(), t.storage_offset() - slot.start)
        index = torch.arange(len(dense.used)).as_strided(*place)
        if dense.used.as_strided(*place).any() or len(index.unique()) < index.numel():
            raise NotFollowed(f"{slot.name} is used more than once")
        dense.used[index] = True
        dense.target.as_strided(*place).numpy()[...] = target
        dense.source.as_strided(*place).numpy()[...] = source

    def finished(self) -> Units:
        """The units, with the ends of every parameter; those without any stay as they are."""
        for name, p in self.parameters.items():
            if (dense := self.parts.get(name)) is not None:
                ends = (e.as_strided(p.size(), p.stride()) for e in (dense.target, dense.source))
                self.units.ends[name] = Ends(*(e.numpy() for e in ends))
            else:
                fixed = np.full((1,) * p.dim(), FIXED)
                self.units.ends[name] = self.whole.get(name, Ends(fixed, fixed))
        return self.units

    # What rules do with units.

    def tied(self, units: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        """Positions along `axes` scale together: one unit for all, with axes of length 1."""
        first = units.min(axis=axes, keepdims=True)
        self.units.tie(units, first)
        return first

    def pinned(self, *values: Hidden) -> Hidden:
        """Units that go into something that is not homogeneous."""
        for value in values:
            self.units.pin(value.units)
        shape = np.broadcast_shapes(*(v.units.shape for v in values))
        return Hidden(np.full(shape, FIXED), frozenset().union(*(v.depends for v in values)))

    def together(self, shape, values) -> Hidden:
        """Entries that are added or compared scale together; constants but 0 fix them."""
        parts = [self.hidden(v) for v in values if self.depends(v)]
        units = np.broadcast_to(parts[0].units, tuple(shape))
        for part in parts[1:]:
            self.units.tie(units, part.units)
        if not all(self.is_zero(v) for v in values if not self.depends(v)):
            self.units.pin(units)
        return Hidden(units, frozenset().union(*(part.depends for part in parts)))

    def depends(self, value) -> bool:
        return isinstance(value, torch.Tensor) and self.kind(value) >= Kind.HIDDEN

    def is_zero(self, value) -> bool:
        """Whether it is 0, or −∞, which takes part in no sum, for every sample."""
        if not isinstance(value, torch.Tensor):
            return value in (0, -np.inf)
        if self.kind(value) != Kind.CONSTANT:
            return False
        return bool(((value == 0) | torch.isneginf(value)).all())


# A rule maps (walk, operation, its result, its arguments) to what the result's memory holds.
Rule = Callable[..., Hidden | Kind | _Memory]
_LOOKS = {"_local_scalar_dense", "equal", "is_nonzero", "item"}
_LEAVES = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__}


def _address(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


def _name(func) -> str:
    return func.overloadpacket.__name__


def _tensors(values) -> list[torch.Tensor]:
    return [t for t in tree_leaves(values) if isinstance(t, torch.Tensor)]


def _without_repeats(t: torch.Tensor) -> torch.Tensor:
    """Along axes that repeat one entry (stride 0), that entry."""
    t = t.detach()
    for axis, (size, stride) in enumerate(_layout(t)):
        if stride == 0 and size > 1:
            t = t.narrow(axis, 0, 1)
    return t


def _axes_of(p: torch.Tensor, t: torch.Tensor) -> list[int | None] | None:
    """For each axis of p, that of t which runs through the same memory (None where p has length 1);
    None if t is not all of p with its axes permuted."""
    found = {(n, s): axis for axis, (n, s) in enumerate(_layout(t))}
    if t.numel() != p.numel() or any(n > 1 and (n, s) not in found for n, s in _layout(p)):
        return None
    return [found[n, s] if n > 1 else None for n, s in _layout(p)]


def _layout(t: torch.Tensor) -> list[tuple[int, int]]:
    """Length and stride of each axis."""
    return list(zip(t.size(), t.stride(), strict=True))


def _transposed(end: np.ndarray, axes: list[int | None], dim: int) -> np.ndarray:
    """An end that broadcasts to the shape of a view, in the order of the parameter's axes."""
    end = end.reshape((1,) * (dim - end.ndim) + end.shape)
    kept = [a for a in axes if a is not None]
    rest = [a for a in range(dim) if a not in kept]
    moved = end.transpose(*kept, *rest).reshape([end.shape[a] for a in kept])
    lengths = iter(moved.shape)
    return moved.reshape([1 if a is None else next(lengths) for a in axes])


def _has_own_derivatives(output: torch.Tensor) -> bool:
    """Whether a torch.autograd.Function stands between the outputs and the parameters."""
    todo, known = [output.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in known:
            continue
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        known.add(node)
        todo += [following for following, _ in node.next_functions]
    return False


def _same(walk: Walk, func, out, x, *args, **kwargs):
    """A positively homogeneous function of each entry, or none at all."""
    return walk.hidden(x)


def _copied(walk: Walk, func, out, x, *args, **kwargs):
    """A copy, or a constant multiple: of a weight it still stands for that weight."""
    if not out.is_floating_point():
        return _steps(walk, func, out, x)
    if walk.kind(x) == Kind.WEIGHT and _layout(out) == _layout(x) and not _repeats(x):
        slot = walk.slot(x)
        start = out.storage_offset() - (x.storage_offset() - slot.start)
        return _Memory(Kind.WEIGHT, slots=[_Slot(slot.name, start)])
    return walk.hidden(x)


def _repeats(t: torch.Tensor) -> bool:
    return any(s == 0 and n > 1 for n, s in _layout(t))


def _copied_into(walk: Walk, func, out, target, source, *args):
    found = walk.placed(source)
    return Hidden(np.broadcast_to(found.units, tuple(target.shape)), found.depends)


def _pinned(walk: Walk, func, out, x, *args, **kwargs):
    """Piecewise linear, but not homogeneous."""
    if any(isinstance(a, torch.Tensor) for a in (*args, *kwargs.values())):
        raise NotFollowed(f"its operation {_shown(func)} has arguments that are not known")
    return walk.pinned(walk.hidden(x))


def _bounded(walk: Walk, func, out, x, *bounds, **kwargs):
    """Homogeneous where the bounds are 0."""
    given = (*bounds, *kwargs.values())
    if all(bound is None or (isinstance(bound, int | float) and bound == 0) for bound in given):
        return walk.hidden(x)
    return _pinned(walk, func, out, x, *bounds, **kwargs)


def _smooth(walk: Walk, func, out, x, *args, **kwargs):
    walk.reason = walk.reason or f"{_shown(func)} is not piecewise linear"
    if any(walk.depends(a) for a in (*args, *kwargs.values())):
        raise NotFollowed(f"its operation {_shown(func)} takes two of its values")
    if walk.kind(x) == Kind.WEIGHT:
        # W → βW may be undone by another change of W, such as W + log β before exp.
        raise NotFollowed(f"its operation {_shown(func)} is of a weight alone")
    return walk.pinned(walk.hidden(x))


def _power(walk: Walk, func, out, *args, **kwargs):
    """W → βW may be undone by β^c after a power c, which units do not follow."""
    walk.reason = walk.reason or f"{_shown(func)} is not piecewise linear"
    raise NotFollowed(f"its operation {_shown(func)} may scale with a power")


def _normalized(walk: Walk, func, *args, **kwargs):
    """The weights of units behind it can be scaled as one without any change to the function."""
    walk.reason = walk.reason or f"{_shown(func)} is not piecewise linear"
    raise NotFollowed(DEGENERATE.format(_shown(func)))


def _shown(func) -> str:
    name = _name(func).strip("_")
    return name.removeprefix("native_").removeprefix("fused_")


def _batch_norm(walk: Walk, func, out, x, weight, bias, mean, var, *settings):
    """In eval mode an affine map of each channel, with statistics that stay as they are."""
    if settings[0] is True or mean is None or _varies(walk, mean):
        return _normalized(walk, func)
    value = walk.pinned(walk.hidden(x))
    trained = [p for p in (weight, bias) if p is not None and walk.depends(p)]
    if not trained:
        return value
    walk.notes.append("batch norm is taken as in eval mode: its statistics are not rescaled")
    # With one of the two held, the other cannot be rescaled.
    target = walk.units.new(out.shape[1]) if len(trained) == 2 else np.full(out.shape[1], FIXED)
    for p in trained:
        walk.weigh(p, target, FIXED)
    names = {walk.slot(p).name for p in trained}
    placed = target.reshape(1, -1, *(1,) * (out.dim() - 2))
    return Hidden(np.broadcast_to(placed, tuple(out.shape)), value.depends | names)


def _sum(walk: Walk, func, out, *values, alpha=1):
    return walk.together(out.shape, values[:2])


def _compared(walk: Walk, func, out, *values):
    walk.together(out.shape, values)
    return Kind.STEPS


def _steps(walk: Walk, func, out, x, *args, **kwargs):
    """Locally constant in a way that depends on the scale, such as rounding."""
    walk.pinned(walk.hidden(x))
    return Kind.STEPS


def _signs(walk: Walk, func, out, *args, **kwargs):
    return Kind.STEPS


def _filled(walk: Walk, func, out, x, *args, **kwargs):
    """A constant, in memory of its own or in that of x."""
    if any(walk.depends(a) for a in args):
        raise NotFollowed(f"its operation {_shown(func)} takes two of its values")
    return Kind.CONSTANT


def _where(walk: Walk, func, out, which, *values):
    if walk.depends(which):
        raise NotFollowed("it selects by a value that is not a comparison")
    return walk.together(out.shape, values)


def _masked(walk: Walk, func, out, x, mask, value):
    return walk.together(out.shape, (x, value))


def _product(walk: Walk, func, out, one, other):
    if not (walk.depends(one) and walk.depends(other)):
        value, factor = (one, other) if walk.depends(one) else (other, one)
        if walk.kind(value) == Kind.WEIGHT and not _varies(walk, factor):
            return _copied(walk, func, out, value)
        found = walk.hidden(value)
        return Hidden(np.broadcast_to(found.units, tuple(out.shape)), found.depends)
    weights = [t for t in (other, one) if walk.kind(t) == Kind.WEIGHT]
    if not weights:
        return _of_two_values(walk, walk.hidden(one), walk.hidden(other))
    weight = weights[0]
    value = walk.hidden(one if weight is other else other)
    return _scaled_by(walk, Hidden(np.broadcast_to(value.units, out.shape), value.depends), weight)


def _varies(walk: Walk, value) -> bool:
    return isinstance(value, torch.Tensor) and walk.kind(value) != Kind.CONSTANT


def _of_two_values(walk: Walk, one: Hidden, other: Hidden) -> Hidden:
    """Still affine in each weight where the two have none in common."""
    if one.depends & other.depends:
        walk.reason = walk.reason or "it multiplies two of its values"
        raise NotFollowed("it multiplies two of its values")
    return walk.pinned(one, other)


def _scaled_by(walk: Walk, value: Hidden, weight: torch.Tensor) -> Hidden:
    """γ ⊙ z: a weight from z to the product, wherever γ is repeated."""
    name = walk.slot(weight).name
    if name in value.depends:
        return _of_two_values(walk, value, walk.hidden(weight))
    spread = weight.detach().expand(value.units.shape)
    own = _without_repeats(spread)
    axes = tuple(a for a in range(own.dim()) if own.size(a) != spread.size(a))
    source = walk.tied(value.units, axes) if axes else value.units
    target = walk.units.new(*own.shape)
    walk.weigh(own, target, source)
    return Hidden(np.broadcast_to(target, value.units.shape), value.depends | {name})


def _quotient(walk: Walk, func, out, one, other, rounding_mode=None):
    if rounding_mode is not None:
        raise NotFollowed("it divides with rounding")
    if walk.depends(other):
        walk.reason = walk.reason or "it divides by a value that depends on its weights"
        raise NotFollowed(
            "it divides by a value that depends on its weights, as normalizations do; units behind "
            "one are scale-invariant, which makes the infimum over rescalings degenerate"
        )
    return _product(walk, func, out, one, other)


def _axes(x: torch.Tensor, dims) -> tuple[int, ...]:
    given = [dims] if isinstance(dims, int) else dims
    return tuple(d % x.dim() for d in given) if given else tuple(range(x.dim()))


def _reduced(walk: Walk, func, out, x, *args, dim=None, **kwargs):
    """A sum, mean or extremum over axes: what is taken together scales together."""
    if args and isinstance(args[0], torch.Tensor):
        return walk.together(out.shape, (x, args[0]))
    dims = args[0] if args else dim
    found = walk.hidden(x)
    first = walk.tied(found.units, _axes(x, dims))
    return Hidden(first.reshape(tuple(out.shape)), found.depends)


def _along(walk: Walk, func, out, x, *args, dim=None, **kwargs):
    """Positions along one axis scale together, and the result has that axis too."""
    at = 1 if _name(func) == "topk" else 0
    dims = args[at] if len(args) > at else -1 if dim is None else dim
    found = walk.hidden(x)
    first = walk.tied(found.units, _axes(x, dims))
    return Hidden(np.broadcast_to(first, tuple(out.shape)), found.depends)


def _argument(walk: Walk, func, out, x, *args, **kwargs):
    walk.tied(walk.hidden(x).units, _axes(x, args[0] if args else None))
    return Kind.STEPS


def _spatial(axes: int) -> Rule:
    """Pooling, resizing: all positions of a channel scale together."""

    def rule(walk: Walk, func, out, x, *args, **kwargs):
        found = walk.hidden(x)
        first = walk.tied(found.units, tuple(range(x.dim() - axes, x.dim())))
        return Hidden(np.broadcast_to(first, tuple(out.shape)), found.depends)

    return rule


def _moved(walk: Walk, func, out, *args, **kwargs):
    """Entries are moved or repeated: the operation is applied to the numbers of their units."""
    tensors = _tensors((args, kwargs))
    values = [t for t in tensors if t.is_floating_point()]
    if any(_varies(walk, t) for t in tensors if not t.is_floating_point()):
        raise NotFollowed(f"its operation {_shown(func)} picks entries by their values")
    placed = {id(t): walk.placed(t) for t in values}
    depends: frozenset[str] = frozenset().union(*(p.depends for p in placed.values()))

    def numbers(a):
        found = placed.get(id(a)) if isinstance(a, torch.Tensor) else None
        return a if found is None else torch.tensor(found.units, dtype=torch.float64)

    found = func(*tree_map(numbers, args), **tree_map(numbers, kwargs))
    return Hidden(found.long().numpy(), depends)


def _padded(walk: Walk, func, out, x, pad, value=0):
    found = walk.hidden(x)
    numbers = torch.tensor(found.units, dtype=torch.float64)
    units = func(numbers, pad, -1.0).long().numpy()
    around = units == -1
    units[around] = FIXED if value else walk.units.new(int(around.sum()))
    return Hidden(units, found.depends)


def _embedded(walk: Walk, func, out, weight, index, *args, **kwargs):
    """One row of the weight for each index: columns are units."""
    if walk.kind(weight) != Kind.WEIGHT or walk.depends(index):
        raise NotFollowed("it looks values up in a table that is not a parameter")
    target = walk.units.new(weight.shape[1])
    walk.weigh(weight, target, FIXED)
    return Hidden(np.broadcast_to(target, tuple(out.shape)), frozenset({walk.slot(weight).name}))


def _leaky(walk: Walk, func, out, x, slope):
    """max(x, 0) + a min(x, 0) scales with x for any a, which stays as it is."""
    found = walk.hidden(x)
    if not walk.depends(slope):
        return found
    own, name = _without_repeats(slope), walk.slot(slope).name
    if name in found.depends:
        raise NotFollowed(f"{name} is used more than once")
    walk.weigh(own, np.full(tuple(own.shape), FIXED), FIXED)
    return Hidden(found.units, found.depends | {name})


def _matrix_product(walk: Walk, func, out, one, other):
    return _affine(walk, out, None, one, other)


def _affine_product(walk: Walk, func, out, bias, one, other, **kwargs):
    return _affine(walk, out, bias, one, other)


def _affine(walk: Walk, out, bias, one, other):
    """bias + one · other, for matrices, or batches of matrices."""
    if other.dim() == 1:
        one, other = (one.unsqueeze(0) if one.dim() == 1 else one), other.unsqueeze(1)
    product = _contracted(walk, _batched(one), _batched(other))
    found = Hidden(product.units.reshape(tuple(out.shape)), product.depends)
    if bias is None or (not walk.depends(bias) and walk.is_zero(bias)):
        return found
    if not walk.depends(bias):
        return walk.pinned(found)
    other_part = walk.hidden(bias)
    walk.units.tie(found.units, other_part.units)
    return Hidden(found.units, found.depends | other_part.depends)


def _batched(t: torch.Tensor) -> torch.Tensor:
    return t.detach().unsqueeze(0) if t.dim() == 2 else t.detach()


def _contracted(walk: Walk, one: torch.Tensor, other: torch.Tensor) -> Hidden:
    """(B, I, K) · (B, K, J)."""
    kinds = walk.kind(one), walk.kind(other)
    shape = one.shape[0], one.shape[1], other.shape[2]
    if kinds[1] == Kind.WEIGHT:
        return _weighted(walk, shape, walk.hidden(one), other)
    if kinds[0] == Kind.WEIGHT:
        value = walk.hidden(other)
        turned = Hidden(value.units.transpose(0, 2, 1), value.depends)
        found = _weighted(walk, (shape[0], shape[2], shape[1]), turned, one.transpose(1, 2))
        return Hidden(found.units.transpose(0, 2, 1), found.depends)
    if kinds[0] == kinds[1] == Kind.HIDDEN:
        found = _of_two_values(walk, *(_flat(walk.hidden(t)) for t in (one, other)))
        return Hidden(np.full(shape, FIXED), found.depends)
    value, axis = (one, 2) if kinds[0] == Kind.HIDDEN else (other, 1)
    found = walk.hidden(value)
    return Hidden(np.broadcast_to(walk.tied(found.units, (axis,)), shape), found.depends)


def _flat(value: Hidden) -> Hidden:
    return Hidden(value.units.reshape(-1, 1)[:, 0][None], value.depends)


def _weighted(walk: Walk, shape, value: Hidden, weight: torch.Tensor) -> Hidden:
    """z (B, I, K) times W (B, K, J); W may be one for all of B."""
    own, name = _without_repeats(weight), walk.slot(weight).name
    if name in value.depends:
        raise NotFollowed(f"{name} is used more than once")
    if own.shape[1:] != weight.shape[1:]:
        raise NotFollowed("it multiplies by a matrix of repeated weights")
    rows = (1,) if own.shape[0] == weight.shape[0] else (0, 1)
    source = walk.tied(value.units, rows)[:, 0, :, None]
    target = walk.units.new(own.shape[0], 1, own.shape[2])
    walk.weigh(own, target, source)
    return Hidden(np.broadcast_to(target, shape), value.depends | {name})


def _convolution(walk: Walk, func, out, x, weight, bias, stride, *settings):
    """Transposed, a weight has the inputs' channels first."""
    _, _, turned, _, groups = settings
    value = walk.hidden(x)
    spatial = tuple(range(out.dim() - len(stride), out.dim()))
    source = walk.tied(value.units, (0, *spatial))[0].reshape(groups, -1)
    if walk.kind(weight) == Kind.WEIGHT:
        target, depends = _convolved(walk, weight, source, groups, turned, len(spatial))
    elif walk.kind(weight) == Kind.HIDDEN:
        kernel = walk.hidden(weight)
        depends = _of_two_values(walk, _flat(value), _flat(kernel)).depends
        target = np.full(out.shape[1], FIXED)
    else:
        depends = frozenset()
        target = np.repeat(walk.tied(source, (1,)), out.shape[1] // groups, axis=1).ravel()
    if bias is not None:
        depends |= _biased(walk, bias, target)
    placed = target.reshape(-1, *(1,) * len(spatial))
    return Hidden(np.broadcast_to(placed, tuple(out.shape)), value.depends | depends)


def _convolved(walk: Walk, weight, source, groups: int, turned: bool, spatial: int):
    ones = (1,) * spatial
    channels = weight.shape[1] * groups if turned else weight.shape[0]
    target = walk.units.new(channels)
    per_group = target.reshape(groups, -1)
    if turned:
        sources = source.reshape(-1, 1, *ones)
        targets = np.repeat(per_group, source.shape[1], axis=0).reshape(-1, weight.shape[1], *ones)
    else:
        targets = target.reshape(-1, 1, *ones)
        sources = np.repeat(source, per_group.shape[1], axis=0).reshape(channels, -1, *ones)
    walk.weigh(weight, targets, sources)
    return target, frozenset({walk.slot(weight).name})


def _biased(walk: Walk, bias, target: np.ndarray) -> frozenset[str]:
    if walk.kind(bias) == Kind.WEIGHT:
        walk.weigh(bias, target, FIXED)
        return frozenset({walk.slot(bias).name})
    part = walk.together(bias.shape, (bias,)) if walk.depends(bias) else None
    if part is None:
        if not walk.is_zero(bias):
            walk.units.pin(target)
        return frozenset()
    walk.units.tie(target, part.units)
    return part.depends


def _of(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, Rule] = {
    **_of("relu leaky_relu abs", _same),
    **_of("neg clone _to_copy contiguous positive lift_fresh", _copied),
    **_of("hardtanh hardsigmoid hardshrink softshrink", _pinned),
    **_of("threshold clamp clamp_min clamp_max", _bounded),
    **_of("_prelu_kernel", _leaky),
    **_of(
        "gelu silu elu softplus sigmoid tanh mish log_sigmoid_forward hardswish exp exp2 expm1 log "
        "log1p log2 sin cos tan erf erfc sinh cosh atan asinh _softmax _log_softmax logsumexp "
        "logit sinc",
        _smooth,
    ),
    **_of("sqrt rsqrt pow square reciprocal", _power),
    **_of(
        "native_layer_norm native_group_norm _fused_rms_norm _native_batch_norm_legit",
        _normalized,
    ),
    **_of("native_batch_norm _native_batch_norm_legit_no_training", _batch_norm),
    **_of("add sub rsub maximum minimum fmax fmin", _sum),
    **_of("gt ge lt le eq ne", _compared),
    **_of("floor ceil round trunc", _steps),
    **_of("sign sgn signbit isnan isinf isfinite", _signs),
    **_of("zeros_like ones_like empty_like full_like zero fill", _filled),
    **_of("new_zeros new_ones new_empty new_full", _filled),
    **_of("where", _where),
    **_of("masked_fill", _masked),
    **_of("mul", _product),
    **_of("div", _quotient),
    **_of("sum mean amax amin max min median", _reduced),
    **_of("cumsum cummax cummin sort topk", _along),
    **_of("argmax argmin", _argument),
    **_of("copy", _copied_into),
    **_of(
        "cat stack index_select index gather flip roll repeat pixel_shuffle pixel_unshuffle "
        "channel_shuffle native_channel_shuffle reflection_pad1d reflection_pad2d "
        "reflection_pad3d replication_pad1d replication_pad2d replication_pad3d im2col tril triu",
        _moved,
    ),
    **_of("constant_pad_nd", _padded),
    **_of("embedding _embedding_bag _embedding_bag_forward_only", _embedded),
    **_of("mm bmm mv dot", _matrix_product),
    **_of("addmm baddbmm addmv", _affine_product),
    **_of("convolution", _convolution),
    **{
        f"{kind}{axes}d{tail}": _spatial(axes)
        for axes in (1, 2, 3)
        for tail in ("", "_with_indices")
        for kind in (
            *("max_pool", "avg_pool", "adaptive_avg_pool", "_adaptive_avg_pool"),
            *("adaptive_max_pool", "upsample_nearest", "_upsample_nearest_exact"),
            *("upsample_linear", "upsample_bilinear", "upsample_trilinear", "upsample_bicubic"),
        )
    },
}
