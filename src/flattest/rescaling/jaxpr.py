"""What a JAX function of (params, x) computes, read from its jaxpr: is f affine in every single
weight on each linear piece, and which hidden units can be rescaled?

The jaxpr is walked for one sample with abstract values: `Known` ones do not depend on parameters;
`Steps` are locally constant (masks such as h > 0); `Weight` is a view of a parameter; `Hidden`
depends on parameters and carries a unit for each entry (see `units`). Shape operations are simply
applied to the arrays of unit numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr

from flattest.rescaling.jaxpr_uses import SHAPES, SMOOTH, Step, shape_of, used_inputs
from flattest.rescaling.jaxpr_values import Hidden, Known, Steps, Weight
from flattest.rescaling.units import (
    BRANCH,
    EXCHANGED,
    FIXED,
    ROWS,
    SHARED,
    SPARSE,
    UNUSED,
    USED,
    WINDOWS,
    ZEROS,
    Ends,
    NotFollowed,
    Structure,
    Units,
)


def structure_of(jaxpr: core.ClosedJaxpr, leaves: dict[str, Any], x) -> Structure:
    """Walks the jaxpr of a function of `leaves` and x, a batch of one."""
    walk, jaxpr = _Walk(leaves), _alive(jaxpr)
    # A dict's leaves come in the order of its sorted keys.
    names = sorted(leaves)
    weights = [Weight(n, np.arange(np.size(leaves[n])).reshape(np.shape(leaves[n]))) for n in names]
    try:
        (output,) = walk.run(jaxpr.jaxpr, jaxpr.consts, [*weights, Known(x, varies=True)])
        walk.units.pin(walk.hidden(output).units)
        walk.settle(output)
    except NotFollowed as stop:
        return Structure(str(stop), exact=False, reason=walk.reason or str(stop))
    if unset := [name for name in names if name not in walk.targets]:
        return Structure(f"{unset[0]} is not used as a weight", exact=not walk.reason)
    for name in names:
        ends = walk.targets[name], walk.sources[name]
        walk.units.ends[name] = Ends(*(end.reshape(np.shape(leaves[name])) for end in ends))
    units = walk.units.lost() or walk.units
    return Structure(units, exact=not walk.reason, reason=walk.reason)


def _alive(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """Without what the outputs do not depend on, which would tie units in vain."""
    kept, _ = dce_jaxpr(jaxpr.jaxpr, [True] * len(jaxpr.jaxpr.outvars), instantiate=True)
    return core.ClosedJaxpr(kept, jaxpr.consts)


def unused(jaxpr: core.ClosedJaxpr, leaves: dict[str, Any]) -> list[str]:
    """The leaves that no equation takes."""
    taken = {id(atom) for equation in jaxpr.eqns for atom in equation.invars}
    taken |= {id(atom) for atom in jaxpr.jaxpr.outvars}
    named = zip(sorted(leaves), jaxpr.jaxpr.invars, strict=False)
    return [name for name, variable in named if id(variable) not in taken]


@dataclass
class _Walk:
    leaves: dict[str, Any]
    units: Units = field(default_factory=Units)
    reason: str = ""
    targets: dict[str, np.ndarray] = field(default_factory=dict)
    sources: dict[str, np.ndarray] = field(default_factory=dict)
    used: dict[str, np.ndarray] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def run(self, jaxpr, constants, inputs) -> list:
        values = dict(zip(jaxpr.constvars, map(Known, constants), strict=True))
        values |= dict(zip(jaxpr.invars, inputs, strict=True))

        def read(atom):
            return Known(atom.val) if isinstance(atom, core.Literal) else values[atom]

        for equation in jaxpr.eqns:
            outputs = self.visit(equation, [read(atom) for atom in equation.invars])
            values.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def visit(self, equation, inputs: list) -> list:
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        name = equation.primitive.name
        if inner is not None and name not in ("scan", "while", "cond"):
            closed = inner if hasattr(inner, "consts") else core.ClosedJaxpr(inner, ())
            return self.run(closed.jaxpr, closed.consts, inputs)
        if all(isinstance(v, Known) for v in inputs):
            return _evaluated(equation, inputs)
        shapes = [variable.aval.shape for variable in equation.outvars]
        if all(isinstance(v, Known | Steps) for v in inputs):
            masks = [Steps(shape) for shape in shapes]
            made = self.units.made
            self.steps += [Step(equation, inputs, mask, made, made) for mask in masks]
            return masks
        if (rule := RULES.get(name)) is None or len(shapes) != 1:
            raise NotFollowed(f"its operation {name} is not known")
        start = self.units.made
        found = rule(self, equation, shapes[0], *map(self.read, inputs))
        self.steps.append(Step(equation, inputs, found, start, self.units.made))
        return [found]

    def read(self, value: Any) -> Any:
        if not isinstance(value, Hidden):
            return value
        return Hidden(self.units.read(value.units), value.depends)

    def settle(self, output) -> None:
        """Ties that only entries need which nothing uses (a part that is cut off) are none; from
        the last step to the first."""
        use = {id(output): np.full(shape_of(output), USED)}
        for step in reversed(self.steps):
            used = use.get(id(step.found), np.full(shape_of(step.found), UNUSED))
            self.units.keep(step.start, step.stop, used)
            if not used.any():
                continue
            for value, part in zip(step.inputs, used_inputs(step, used), strict=True):
                if not isinstance(value, Known):
                    before = use.get(id(value), UNUSED)
                    use[id(value)] = np.maximum(before, np.broadcast_to(part, shape_of(value)))

    def use(self, weight: Weight, targets, sources) -> None:
        """Notes the units that each entry of a weight stands between."""
        size = np.size(self.leaves[weight.name])
        for ends in (self.targets, self.sources):
            ends.setdefault(weight.name, np.zeros(size, int))
        used = self.used.setdefault(weight.name, np.zeros(size, bool))
        index = weight.index.ravel()
        if used[index].any() or len(np.unique(index)) < len(index):
            raise NotFollowed(f"{weight.name} is used more than once")
        used[index] = True
        self.targets[weight.name][index] = np.broadcast_to(targets, weight.index.shape).ravel()
        self.sources[weight.name][index] = np.broadcast_to(sources, weight.index.shape).ravel()

    def hidden(self, value) -> Hidden:
        """A weight that stands alone is a bias: units of its own, fed by a constant."""
        if isinstance(value, Hidden):
            return value
        if not isinstance(value, Weight):
            raise NotFollowed("its outputs do not depend on its parameters")
        own, inverse = np.unique(value.index, return_inverse=True)
        units = self.units.new(own.size)
        self.use(Weight(value.name, own), units, FIXED)
        return Hidden(units[inverse.reshape(value.index.shape)], frozenset({value.name}))

    def placed(self, value) -> Hidden:
        """As `hidden`, for entries that are put beside others: constants are fixed, but each 0
        scales with anything."""
        if not isinstance(value, Known):
            return self.hidden(value)
        units = np.full(np.shape(value.value), FIXED)
        if not value.varies:
            zero = _scales(value.value)
            units[zero] = self.units.zeros(int(zero.sum()))
        return Hidden(units, frozenset())

    def times(self, units: np.ndarray, factor) -> np.ndarray:
        """Units of values times a factor; where that is 0, whatever the sample, 0 is left."""
        return self.units.cut(units, np.broadcast_to(np.asarray(factor) == 0, units.shape))

    def together(self, shape, values, losing: str = "") -> Hidden:
        """Entries that are added or compared scale together; constants but 0 fix them."""
        parts = [self.hidden(v) for v in values if isinstance(v, Hidden | Weight)]
        units = np.broadcast_to(parts[0].units, shape)
        for part in parts[1:]:
            self.units.tie(units, part.units, by_entry=True)
            units = self.units.either(units, part.units)
        for constant in (v for v in values if isinstance(v, Known | Steps)):
            units = self.fix(units, constant, losing)
        return Hidden(units, frozenset().union(*(part.depends for part in parts)))

    def fix(self, units: np.ndarray, constant: Known | Steps, losing: str) -> np.ndarray:
        """What a constant is added to is fixed, but not where it is 0; or in vain, where it may be
        0 for this sample alone. The units of the sum."""
        if isinstance(constant, Steps):
            self.units.pin(units, losing)
            return np.where(self.units.are_zeros(units), FIXED, units)
        zero, units = np.broadcast_arrays(_scales(constant.value), units)
        self.units.pin(np.where(zero, FIXED, units), losing, by_entry=True)
        if constant.varies:
            self.units.pin(np.where(zero, units, FIXED), ZEROS, by_entry=True)
            zero = np.full(zero.shape, False)
        return np.where(self.units.are_zeros(units) & ~zero, FIXED, units)

    def pinned(self, *values: Hidden) -> Hidden:
        """Units that go into something that is not homogeneous."""
        for value in values:
            self.units.pin(value.units, by_entry=True)
        return Hidden(
            np.full(np.broadcast_shapes(*(v.units.shape for v in values)), FIXED),
            frozenset().union(*(v.depends for v in values)),
        )

    def tied(self, value: Hidden, axes: tuple[int, ...], losing: str = "") -> np.ndarray:
        """Positions along `axes` scale together: one unit for all, with axes of length 1."""
        first = self.units.first(value.units, axes)
        self.units.tie(value.units, first, losing)
        return first

    def channels(self, value: Hidden, axes: tuple[int, ...]) -> np.ndarray:
        """One unit for each index along `axes`; positions along the others, which meet the same
        weights, are tied to it."""
        rest = tuple(a for a in range(value.units.ndim) if a not in axes)
        units = value.units.transpose(*rest, *axes).reshape(
            -1, *(value.units.shape[a] for a in axes)
        )
        self.units.tie(units, units[:1], ROWS)
        return units[0]


def _evaluated(equation, inputs: list[Known]) -> list[Known]:
    outputs = equation.primitive.bind(*(v.value for v in inputs), **equation.params)
    values = outputs if equation.primitive.multiple_results else [outputs]
    return [Known(v, any(known.varies for known in inputs)) for v in values]


def _scales(value: Any) -> np.ndarray:
    """Which entries are the same times any factor: 0, and what takes part in no sum, −∞ that
    reductions and padding begin with and NaN that a look-up beyond a table would give."""
    value = np.asarray(value, float)
    return (value == 0) | np.isneginf(value) | np.isnan(value)


def _is_constant(value) -> bool:
    return isinstance(value, Known | Steps)


def _applied(equation, array: np.ndarray) -> np.ndarray:
    return np.asarray(equation.primitive.bind(jnp.asarray(array), **equation.params))


def _shape(walk: _Walk, equation, shape, value, *rest):
    """Reshaping, transposing, broadcasting, slicing: done to the numbers of units."""
    if isinstance(value, Weight):
        return Weight(value.name, _applied(equation, value.index))
    return Hidden(_applied(equation, value.units), value.depends)


def _same(walk: _Walk, equation, shape, value, *rest):
    """Positively homogeneous of degree 1, entry by entry."""
    return value


def _absolute(walk: _Walk, equation, shape, value):
    return walk.hidden(value)


def _convert(walk: _Walk, equation, shape, value):
    kind = equation.params["new_dtype"]
    if not jnp.issubdtype(kind, jnp.floating):
        if kind != jnp.bool_:  # Whole numbers depend on the scale, whether it is 0 does not.
            walk.units.pin(walk.hidden(value).units)
        return Steps(shape)
    return value


def _concatenate(walk: _Walk, equation, shape, *values):
    parts = [walk.placed(v) for v in values]
    units = np.concatenate([p.units for p in parts], axis=equation.params["dimension"])
    return Hidden(units, frozenset().union(*(p.depends for p in parts)))


def _sum_or_extremum(walk: _Walk, equation, shape, *values):
    found = walk.together(shape, values)
    if (choose := _EXTREMA.get(equation.primitive.name)) is None:
        return found
    # A constant 0 that stays one.
    for value, other in (values, values[::-1]):
        if isinstance(value, Hidden) and isinstance(other, Known) and not other.varies:
            zero = walk.units.are_zeros(value.units) & (choose(np.asarray(other.value), 0) == 0)
            return Hidden(walk.units.cut(found.units, np.broadcast_to(zero, shape)), found.depends)
    return found


def _comparison(walk: _Walk, equation, shape, *values):
    walk.together(shape, values)
    return Steps(shape)


def _select(walk: _Walk, equation, shape, which, *values):
    if not _is_constant(which):
        raise NotFollowed("it selects by a value that is not a comparison")
    if isinstance(which, Steps) or which.varies:
        return walk.together(shape, values, "" if isinstance(which, Steps) else BRANCH)
    parts = [walk.placed(v) for v in values]
    chosen = np.broadcast_to(np.asarray(which.value, int), shape)
    units = np.choose(chosen, [np.broadcast_to(part.units, shape) for part in parts])
    return Hidden(units, frozenset().union(*(part.depends for part in parts)))


def _product(walk: _Walk, equation, shape, one, other):
    if _is_constant(one) or _is_constant(other):
        value = other if _is_constant(one) else one
        # A weight times 0 or 1 by a step is no longer one weight: let it be a bias first.
        constant = one if _is_constant(one) else other
        if isinstance(value, Weight) and isinstance(constant, Steps):
            value = walk.hidden(value)
        found = _spread(value, shape)
        if isinstance(found, Hidden) and isinstance(constant, Known) and not constant.varies:
            return Hidden(walk.times(found.units, constant.value), found.depends)
        return found
    if isinstance(one, Weight) and isinstance(other, Weight):
        raise NotFollowed("it multiplies two of its parameters")
    if isinstance(other, Hidden) and isinstance(one, Hidden):
        return _of_two_values(walk, one, other)
    value, weight = (one, other) if isinstance(other, Weight) else (other, one)
    units, index = (np.broadcast_to(a, shape) for a in (value.units, weight.index))
    return _scaled_by(walk, Hidden(units, value.depends), Weight(weight.name, index))


def _spread(value: Weight | Hidden, shape) -> Weight | Hidden:
    """The value after broadcasting, which jaxprs leave implicit along axes of length 1."""
    if isinstance(value, Weight):
        return Weight(value.name, np.broadcast_to(value.index, shape))
    return Hidden(np.broadcast_to(value.units, shape), value.depends)


def _of_two_values(walk: _Walk, one: Hidden, other: Hidden) -> Hidden:
    """Still affine in each weight where the two have none in common. Where one is held, the other
    goes through."""
    depends = _apart(one, other)
    shape = np.broadcast_shapes(one.units.shape, other.units.shape)
    for held, free in ((one, other), (other, one)):
        if walk.units.held(held.units):
            walk.units.pin(held.units, EXCHANGED)
            return Hidden(np.broadcast_to(free.units, shape), depends)
    for value in (one, other):
        walk.units.pin(value.units, EXCHANGED)
    return Hidden(np.full(shape, FIXED), depends)


def _apart(one: Hidden, other: Hidden) -> frozenset[str]:
    if common := one.depends & other.depends:
        raise NotFollowed(f"it multiplies values that both depend on {min(common)}")
    return one.depends | other.depends


def _scaled_by(walk: _Walk, value: Hidden, weight: Weight) -> Hidden:
    """γ ⊙ z: a weight from z to the product, wherever γ is repeated."""
    own, inverse = np.unique(weight.index, return_inverse=True)
    inverse = inverse.reshape(weight.index.shape)
    source = np.zeros(own.size, int)
    source[inverse] = value.units
    walk.units.tie(value.units, source[inverse], SHARED)
    target = walk.units.new(own.size)
    walk.use(Weight(weight.name, own), target, source)
    return Hidden(target[inverse], value.depends | {weight.name})


def _quotient(walk: _Walk, equation, shape, one, other):
    if not _is_constant(other):
        raise NotFollowed(
            "it divides by a value that depends on its weights, as normalizations do; units behind "
            "one are scale-invariant, which makes the infimum over rescalings degenerate"
        )
    return _spread(one, shape)


def _reduction(walk: _Walk, equation, shape, value):
    value = walk.hidden(value)
    first = walk.tied(value, tuple(equation.params["axes"]))
    return Hidden(first.reshape(shape), value.depends)


def _argument(walk: _Walk, equation, shape, value):
    _reduction(walk, equation, shape, value)
    return Steps(shape)


def _window(walk: _Walk, equation, shape, value, *starts):
    """Pooling: all positions along the pooled axes are taken to scale together."""
    value, size = walk.hidden(value), equation.params["window_dimensions"]
    axes = tuple(a for a, s in enumerate(size) if s > 1)
    first = walk.tied(value, axes, "" if all(shape[a] == 1 for a in axes) else WINDOWS)
    return Hidden(np.broadcast_to(first, shape), value.depends)


def _smooth(walk: _Walk, equation, shape, value, *rest):
    walk.reason = walk.reason or f"{equation.primitive.name} is not piecewise linear"
    if not all(_is_constant(v) for v in rest):
        raise NotFollowed(f"its operation {equation.primitive.name} takes two of its values")
    if isinstance(value, Weight):
        # W → βW may be undone by another change of W, such as W + log β before exp.
        raise NotFollowed(f"its operation {equation.primitive.name} is of a weight alone")
    # W → βW may be undone by β^c after a power c, which units do not follow.
    if equation.primitive.name in ("sqrt", "rsqrt", "cbrt", "square", "integer_pow", "pow"):
        raise NotFollowed(f"its operation {equation.primitive.name} may scale with a power")
    value = walk.hidden(value)
    zero = equation.primitive.name in _ODD.split() and walk.units.are_zeros(value.units)
    found = walk.pinned(value)
    return Hidden(walk.units.cut(found.units, np.broadcast_to(zero, shape)), found.depends)


def _dot(walk: _Walk, equation, shape, one, other):
    (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
    if isinstance(one, Weight) and isinstance(other, Weight):
        raise NotFollowed("it multiplies two of its parameters")
    if isinstance(one, Hidden) and isinstance(other, Hidden):
        for v in (one, other):
            walk.units.pin(v.units, EXCHANGED)
        return Hidden(np.full(shape, FIXED), _apart(one, other))
    if left_batch:
        raise NotFollowed("it multiplies batches of matrices")
    if isinstance(other, Weight):
        return _weighted(walk, shape, one, tuple(left), other, tuple(right), last=True)
    if isinstance(one, Weight):
        return _weighted(walk, shape, other, tuple(right), one, tuple(left), last=False)
    value, axes = (one, tuple(left)) if isinstance(one, Hidden) else (other, tuple(right))
    by = other if isinstance(one, Hidden) else one
    losing = ""
    if isinstance(by, Known) and np.any(np.asarray(by.value) == 0):
        losing = SPARSE
        if not by.varies:
            other = tuple(right) if isinstance(one, Hidden) else tuple(left)
            factors = np.moveaxis(np.asarray(by.value) != 0, other, range(len(other)))
            return _cut_off(walk, shape, value, axes, factors, isinstance(one, Hidden))
    return _mixed(walk, shape, value, axes, isinstance(one, Hidden), losing)


def _weighted(walk: _Walk, shape, value, axes, weight: Weight, contracted, last: bool) -> Hidden:
    """z · W over `axes` of z and `contracted` ones of W; new units stand where W's others do."""
    if isinstance(value, Steps):
        value = Known(np.ones(value.shape))
    if isinstance(value, Known):
        value = walk.placed(value)
    source = walk.channels(value, axes)
    free = tuple(a for a in range(weight.index.ndim) if a not in contracted)
    index = weight.index.transpose(*free, *contracted)
    target = walk.units.new(*index.shape[: len(free)])
    walk.use(
        Weight(weight.name, index), target.reshape(target.shape + (1,) * len(contracted)), source
    )
    ahead = len(shape) - target.ndim
    placed = target if last else target.reshape(target.shape + (1,) * ahead)
    return Hidden(np.broadcast_to(placed, shape), value.depends | {weight.name})


def _mixed(walk: _Walk, shape, value: Hidden, axes, last: bool, losing: str) -> Hidden:
    """A product with a constant matrix: what it mixes scales together."""
    kept = walk.tied(value, axes, losing).squeeze(axes)
    more = len(shape) - kept.ndim
    placed = kept.reshape(kept.shape + (1,) * more) if last else kept
    return Hidden(np.broadcast_to(placed, shape), value.depends)


def _cut_off(walk: _Walk, shape, value: Hidden, axes, by: np.ndarray, last: bool) -> Hidden:
    """As `_mixed` with a matrix that has zeros, the axes it is summed over first; `by` where it has
    none."""
    units = np.moveaxis(value.units, axes, range(-len(axes), 0))
    many = int(np.prod(by.shape[: len(axes)]))
    found = walk.units.mixed(units.reshape(1, -1, many), by.reshape(1, many, -1))[0]
    return Hidden((found if last else found.T).reshape(shape), value.depends)


def _convolution(walk: _Walk, equation, shape, value, weight):
    settings = equation.params
    numbers, groups = settings["dimension_numbers"], settings["feature_group_count"]
    if not isinstance(weight, Weight) or settings["batch_group_count"] != 1:
        raise NotFollowed("it convolves with something that is not a parameter")
    if _is_constant(value):
        old = value.shape if isinstance(value, Steps) else np.shape(value.value)
        value = Hidden(np.full(old, FIXED), frozenset())
    source = walk.channels(value, (numbers.lhs_spec[1],)).reshape(groups, 1, -1)
    index = weight.index.transpose(numbers.rhs_spec)
    target = walk.units.new(index.shape[0])
    per_group = index.shape[0] // groups
    sources = np.broadcast_to(source, (groups, per_group, source.shape[-1]))
    ones = (1,) * (index.ndim - 2)
    walk.use(
        Weight(weight.name, index),
        target.reshape(-1, 1, *ones),
        sources.reshape(index.shape[0], -1, *ones),
    )
    placed = [1] * len(shape)
    placed[numbers.out_spec[1]] = -1
    return Hidden(np.broadcast_to(target.reshape(placed), shape), value.depends | {weight.name})


def _gathered(walk: _Walk, equation, shape, table, index):
    """Rows of a table of weights, as words are looked up: columns are units."""
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    rows = numbers.collapsed_slice_dims == numbers.start_index_map == (0,)
    whole = isinstance(table, Weight) and tuple(sizes[1:]) == table.index.shape[1:]
    if not rows or not whole or not isinstance(index, Known):
        raise NotFollowed("its operation gather is not known")
    if not index.varies:  # The same rows for all samples: entries that are moved.
        entries = walk.hidden(table)
        # As numbers that may be NaN, which a look-up beyond a table gives.
        numbers = jnp.asarray(entries.units, float)
        found = equation.primitive.bind(numbers, index.value, **equation.params)
        return Hidden(np.nan_to_num(np.asarray(found)).astype(int), entries.depends)
    target = walk.units.new(*table.index.shape[1:])
    walk.use(table, target, FIXED)
    placed = [1] * len(shape)
    for axis, length in zip(numbers.offset_dims, target.shape, strict=True):
        placed[axis] = length
    return Hidden(np.broadcast_to(target.reshape(placed), shape), frozenset({table.name}))


_EXTREMA = {"max": np.maximum, "min": np.minimum}
# Those that are 0 at 0.
_ODD = "tanh expm1 log1p sin tan erf sinh atan asinh"
RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(SHAPES.split(), _shape),
    **dict.fromkeys(SMOOTH.split(), _smooth),
    **dict.fromkeys(("neg", "name", "optimization_barrier"), _same),
    **dict.fromkeys(("add", "sub", "add_any", "max", "min"), _sum_or_extremum),
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne"), _comparison),
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min"), _reduction),
    **dict.fromkeys(("argmax", "argmin"), _argument),
    **dict.fromkeys(("reduce_window_sum", "reduce_window_max", "reduce_window_min"), _window),
    "abs": _absolute,
    "sign": lambda walk, equation, shape, value: Steps(shape),
    "convert_element_type": _convert,
    "concatenate": _concatenate,
    "select_n": _select,
    "mul": _product,
    "div": _quotient,
    "gather": _gathered,
    "dot_general": _dot,
    "conv_general_dilated": _convolution,
}
