"""The run of a PyTorch module on a sample, watched operation by operation: what every piece of
memory holds, and which units its entries have.

Beside the memory of every tensor stands an array of unit numbers (see `units`), one for each entry,
so that views and work in place need no rules: they read and write the same memory. An operation
whose result is new memory has a rule (`module_rules`); one that has none ends the walk
(`NotFollowed`), and so does whatever hides a dependence from autograd.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from flattest.rescaling.module_uses import (
    Lets,
    Step,
    Uses,
    address,
    entries,
    lets,
    name_of,
    tensors_in,
)
from flattest.rescaling.units import FIXED, USED, ZEROS, Ends, NotFollowed, Units


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


class Slot(NamedTuple):
    """Where in a piece of memory the entries of a parameter begin, as the parameter has them."""

    name: str
    start: int


@dataclass
class Memory:
    kind: Kind
    units: torch.Tensor | None = None
    depends: frozenset[str] = frozenset()
    slots: list[Slot] = field(default_factory=list)


@dataclass
class _DenseEnds:
    """Ends of a parameter that is used in parts, entry by entry in the order of its memory."""

    target: torch.Tensor
    source: torch.Tensor
    used: torch.Tensor


class Seen(TorchDispatchMode):
    """Records the values that Python code looks at: where a run branches, it does by these."""

    def __init__(self):
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, torch.Tensor) and name_of(func) in _LOOKS:
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

    def __init__(self, parameters: Mapping[str, torch.Tensor], x: Any, rules: "Mapping[str, Rule]"):
        super().__init__()
        self.parameters, self.rules, self.units = parameters, rules, Units()
        self.reason, self.stopped, self.entries = "", "", 1
        self.notes: list[str] = []
        # What was computed, in order, and what is known to be used of it.
        self.steps: list[Step] = []
        self.taken: list[torch.Tensor] = []
        # Whether Python code looked at a value that may be another for another sample.
        self.branches = False
        self.whole: dict[str, Ends] = {}
        self.parts: dict[str, _DenseEnds] = {}
        # Memory is known by its address, which is not given to another while its tensor lives.
        self.alive: list[torch.Tensor] = []
        self.memory: dict[int, Memory] = {}
        for name, p in parameters.items():
            held = self.memory.setdefault(address(p), Memory(Kind.WEIGHT))
            held.slots.append(Slot(name, p.storage_offset()))
        for t in tree_leaves(x):
            if isinstance(t, torch.Tensor):
                self.memory[address(t)] = Memory(Kind.VARIES)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        known = tensors_in((args, kwargs))
        hidden = all(t.requires_grad for t in known if self.kind(t) >= Kind.HIDDEN)
        changed = self.copied(args[0]) if args and func._schema.is_mutable else None
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.entries += sum(t.numel() for t in tensors_in(result))
        kind = max(map(self.kind, known), default=Kind.CONSTANT)
        if self.stopped or kind == Kind.CONSTANT:
            return result
        try:
            if kind >= Kind.HIDDEN and not (hidden and torch.is_grad_enabled()):
                raise NotFollowed("it hides a dependence on its weights from autograd")
            if not isinstance(result, torch.Tensor) and name_of(func) in _LOOKS:
                self.taken += known
                self.look(kind)
            else:
                before = self.made()
                given = args if changed is None else (changed, *args[1:])
                through = self.lets(func, kind, given)
                self.follow(func, kind, result, args, kwargs, given)
                made = tuple(zip(before, self.made(), strict=True))
                # As they lie in memory now: transpose_ and the like change that.
                kept = tree_map_only(torch.Tensor, torch.detach, (args, kwargs, result))
                self.steps.append(Step(func, kept[0], kept[1], tensors_in(kept[2]), made, through))
        except NotFollowed as stop:
            # Not raised: a user's code might catch it, and the values are still to be counted.
            self.stopped = str(stop)
        self.alive += tensors_in(result)
        return result

    def left(self, t: torch.Tensor) -> None:
        super().left(t)
        if self.stopped or (kind := self.kind(t)) == Kind.CONSTANT:
            return
        self.taken.append(t)
        try:
            self.look(kind)
        except NotFollowed as stop:
            self.stopped = str(stop)

    def made(self) -> tuple[int, ...]:
        """How many ties there are."""
        return (self.units.made,)

    def keep(self, step: Step, used: np.ndarray) -> None:
        """What a step made is kept as far as its result is used."""
        self.units.keep(*step.made[0], used)

    def lets(self, func, kind: Kind, given) -> Lets:
        """What constants among the arguments let through of the others."""
        if kind < Kind.HIDDEN:
            return [None] * len(given)
        fixed = [not isinstance(a, torch.Tensor) or self.kind(a) == Kind.CONSTANT for a in given]
        return lets(func, fixed, given)

    def look(self, kind: Kind) -> None:
        if kind >= Kind.HIDDEN:
            raise NotFollowed("it reads the value of a tensor that depends on its weights")
        self.branches = True

    def copied(self, t: Any) -> torch.Tensor | None:
        """What an operation in place finds there: a copy of what depends on no parameter, since
        rules look at the values of constants."""
        if not isinstance(t, torch.Tensor) or (kind := self.kind(t)) >= Kind.HIDDEN:
            return None
        found = t.detach().clone()
        if kind > Kind.CONSTANT:
            self.memory[address(found)] = Memory(kind)
        self.alive.append(found)
        return found

    def follow(self, func, kind: Kind, result, args, kwargs, given) -> None:
        """Notes what the memory of the results holds; `given` are the arguments as they were before
        an operation in place."""
        name, outputs = name_of(func), tensors_in(result)
        if func._schema.is_mutable:
            self.follow_in_place(func, kind, result, args, kwargs, given)
            return
        known = {address(t) for t in tensors_in((args, kwargs))}
        if not (fresh := [t for t in outputs if t.numel() and address(t) not in known]):
            return
        if kind < Kind.HIDDEN:
            kind = Kind.CONSTANT if name in _FILLED else kind
            self.memory.update((address(t), Memory(kind)) for t in fresh)
            return
        first, *others = outputs
        found = self.ruled(name)(self, func, first, *args, **kwargs)
        self.write(first, found)
        for other in others:
            # Positions of maxima are steps; statistics and the like are not followed further.
            held = Memory(Kind.STEPS) if not other.is_floating_point() else Memory(Kind.HIDDEN)
            self.memory[address(other)] = held

    def follow_in_place(self, func, kind: Kind, result, args, kwargs, given) -> None:
        name, target = name_of(func), args[0]
        if not name.endswith("_") or not isinstance(result, torch.Tensor):
            raise NotFollowed(f"its operation {name} is not known")
        held = self.memory.get(address(target))
        if held and held.kind == Kind.WEIGHT:
            raise NotFollowed("it changes its weights as it runs")
        if kind < Kind.HIDDEN:
            self.memory[address(target)] = Memory(kind)
            return
        found = self.ruled(name[:-1])(self, func, result, *given, **kwargs)
        if held is None or held.kind < Kind.HIDDEN:
            self.memory[address(target)] = self.filled(target)
        self.write(result, found)

    def ruled(self, name: str) -> "Rule":
        if (rule := self.rules.get(name)) is None:
            raise NotFollowed(f"its operation {name.strip('_')} is not known")
        return rule

    # What the memory of a tensor holds.

    def kind(self, t: torch.Tensor) -> Kind:
        held = self.memory.get(address(t))
        return held.kind if held and t.numel() else Kind.CONSTANT

    def write(self, t: torch.Tensor, found: "Hidden | Kind | Memory") -> None:
        at = address(t)
        if isinstance(found, Memory):
            self.memory[at] = found
            return
        if isinstance(found, Kind):
            held = self.memory.get(at)
            if held is None or held.kind < Kind.HIDDEN:
                self.memory[at] = Memory(found)
            else:
                units = self.view(t, held)
                units[...] = self.constant(t) if found == Kind.CONSTANT else FIXED
            return
        held = self.memory.get(at)
        if held is None or held.units is None:
            held = Memory(Kind.HIDDEN, torch.full((entries(t),), FIXED))
            self.memory[at] = held
        held.depends |= found.depends
        self.view(t, held)[...] = found.units

    def view(self, t: torch.Tensor, held: Memory) -> np.ndarray:
        """The units of a tensor's entries, in its shape."""
        if held.units is None:
            raise NotFollowed("it uses statistics of its values")
        if len(held.units) != entries(t) or t.is_complex():
            raise NotFollowed("it reads its values as numbers of another type")
        return held.units.as_strided(t.size(), t.stride(), t.storage_offset()).numpy()

    def hidden(self, t: torch.Tensor) -> Hidden:
        """What depends on parameters. A weight that stands alone is a bias: units of its own, fed
        by a constant; constants are fixed."""
        kind = self.kind(t)
        if kind < Kind.HIDDEN:
            return Hidden(np.full(tuple(t.shape), FIXED), frozenset())
        held = self.memory[address(t)]
        if kind == Kind.HIDDEN:
            return Hidden(self.units.read(self.view(t, held)), held.depends)
        own = without_repeats(t)
        units = self.units.new(*own.shape)
        self.weigh(own, units, FIXED)
        return Hidden(np.broadcast_to(units, tuple(t.shape)), frozenset({self.slot(t).name}))

    def placed(self, t: torch.Tensor) -> Hidden:
        """As `hidden`, for entries that are moved about: a constant 0 scales with anything."""
        if self.kind(t) != Kind.CONSTANT:
            return self.hidden(t)
        return Hidden(self.constant(t), frozenset())

    def times(self, units: np.ndarray, factor) -> np.ndarray:
        """Units of values times a factor; where that is 0, whatever the sample, 0 is left."""
        if isinstance(factor, torch.Tensor) and self.kind(factor) != Kind.CONSTANT:
            return units
        zero = (torch.as_tensor(factor) == 0).cpu().numpy()
        return self.units.cut(units, np.broadcast_to(zero, units.shape))

    def constant(self, t: torch.Tensor) -> np.ndarray:
        """Units of constant entries: fixed, but each 0 (or −∞) scales with anything."""
        units = np.full(tuple(t.shape), FIXED)
        zero = _scales(t.detach())
        units[zero] = self.units.zeros(int(zero.sum()))
        return units

    def filled(self, t: torch.Tensor) -> Memory:
        """Memory as it is when values are written to a part of it."""
        if self.kind(t) != Kind.CONSTANT:
            return Memory(Kind.HIDDEN, torch.full((entries(t),), FIXED))
        everything = t.detach().as_strided((entries(t),), (1,), 0)
        return Memory(Kind.HIDDEN, torch.from_numpy(self.constant(everything)))

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
            return
        self.settle([*self.taken, value])

    def settle(self, taken: list[torch.Tensor]) -> None:
        """Ties that only results need which nothing uses, or entries of them (outputs beside these,
        statistics for a log, a part that is cut off), are none; from the last step to the first."""
        use = Uses()
        for t in taken:
            use.mark(t, USED)
        for step in reversed(self.steps):
            results = [t for t in step.results if t.numel()]
            known = {address(t) for t in tensors_in((step.args, step.kwargs))}
            changes = step.func._schema.is_mutable
            if results and (changes or any(address(t) not in known for t in results)):
                self.keep(step, use.back(step))
            # Else it is a view.

    # Weights.

    def slot(self, t: torch.Tensor) -> Slot:
        """The parameter that a view belongs to."""
        slots = self.memory[address(t)].slots
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
            ends = Ends(*(_transposed(end, axes, t.dim()) for end in (target, source)))
            if slot.name in self.whole:
                self.weigh_again(slot.name, ends)
            else:
                self.whole[slot.name] = ends
            return
        if slot.name in self.whole:
            raise NotFollowed(f"{slot.name} is used more than once")
        self.weigh_part(t, slot, p, target, source)

    def weigh_again(self, name: str, ends: Ends) -> None:
        """A weight that was used between other ends."""
        raise NotFollowed(f"{name} is used more than once")

    def weigh_part(self, t, slot: Slot, p, target, source) -> None:
        if (dense := self.parts.get(slot.name)) is None:
            size = 1 + sum((n - 1) * s for n, s in layout(p))
            target_units, source_units = (torch.full((size,), FIXED) for _ in range(2))
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

    def tied(self, units: np.ndarray, axes: tuple[int, ...], losing: str = "") -> np.ndarray:
        """Positions along `axes` scale together: one unit for all, with axes of length 1."""
        first = self.units.first(units, axes)
        self.units.tie(units, first, losing)
        return first

    def pinned(self, *values: Hidden) -> Hidden:
        """Units that go into something that is not homogeneous."""
        for value in values:
            self.units.pin(value.units, by_entry=True)
        shape = np.broadcast_shapes(*(v.units.shape for v in values))
        return Hidden(np.full(shape, FIXED), frozenset().union(*(v.depends for v in values)))

    def together(self, shape, values, losing: str = "") -> Hidden:
        """Entries that are added or compared scale together; constants but 0 fix them."""
        parts = [self.hidden(v) for v in values if self.depends(v)]
        units = np.broadcast_to(parts[0].units, tuple(shape))
        for part in parts[1:]:
            self.units.tie(units, part.units, by_entry=True)
            units = self.units.either(units, part.units)
        for value in values:
            if not self.depends(value):
                units = self.fix(units, value, losing)
        return Hidden(units, frozenset().union(*(part.depends for part in parts)))

    def fix(self, units: np.ndarray, value, losing: str = "") -> np.ndarray:
        """What a constant is added to is fixed, but not where it is 0; or in vain, where it may be
        0 for this sample alone. The units of the sum."""
        value = torch.as_tensor(value)
        zero, units = np.broadcast_arrays(_scales(value), units)
        self.units.pin(np.where(zero, FIXED, units), losing, by_entry=True)
        if self.kind(value) != Kind.CONSTANT:
            self.units.pin(np.where(zero, units, FIXED), ZEROS, by_entry=True)
            zero = np.full(zero.shape, False)
        return np.where(self.units.are_zeros(units) & ~zero, FIXED, units)

    def depends(self, value) -> bool:
        return isinstance(value, torch.Tensor) and self.kind(value) >= Kind.HIDDEN


# A rule maps (walk, operation, its result, its arguments) to what the result's memory holds.
Rule = Callable[..., Hidden | Kind | Memory]
_LOOKS = {"_local_scalar_dense", "equal", "is_nonzero", "item"}
_LEAVES = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__}


_FILLED = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}


def _scales(t: torch.Tensor) -> np.ndarray:
    """Which entries are the same times any factor: 0, and −∞, which takes part in no sum."""
    return ((t == 0) | torch.isneginf(t)).numpy()


def without_repeats(t: torch.Tensor) -> torch.Tensor:
    """Along axes that repeat one entry (stride 0), that entry."""
    t = t.detach()
    for axis, (size, stride) in enumerate(layout(t)):
        if stride == 0 and size > 1:
            t = t.narrow(axis, 0, 1)
    return t


def _axes_of(p: torch.Tensor, t: torch.Tensor) -> list[int | None] | None:
    """For each axis of p, that of t which runs through the same memory (None where p has length 1);
    None if t is not all of p with its axes permuted."""
    found = {(n, s): axis for axis, (n, s) in enumerate(layout(t))}
    if t.numel() != p.numel() or any(n > 1 and (n, s) not in found for n, s in layout(p)):
        return None
    return [found[n, s] if n > 1 else None for n, s in layout(p)]


def layout(t: torch.Tensor) -> list[tuple[int, int]]:
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
