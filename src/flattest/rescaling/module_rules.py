"""How units go through the operations of PyTorch, each by its name in ATen (`RULES`)."""

import numpy as np
import torch
from torch.utils._pytree import tree_map

from flattest.rescaling.module_uses import name_of, tensors_in
from flattest.rescaling.module_walk import (
    Hidden,
    Kind,
    Memory,
    Rule,
    Slot,
    Walk,
    layout,
    without_repeats,
)
from flattest.rescaling.units import (
    BRANCH,
    DEGENERATE,
    EXCHANGED,
    FIXED,
    ROWS,
    SHARED,
    SPARSE,
    WINDOWS,
    NotFollowed,
)


def _same(walk: Walk, func, out, x, *args, **kwargs):
    """A positively homogeneous function of each entry, or none at all."""
    return walk.hidden(x)


def _copied(walk: Walk, func, out, x, *args, **kwargs):
    """A copy, or a constant multiple: of a weight it still stands for that weight."""
    if out.is_complex():
        raise NotFollowed("it computes with complex numbers")
    if not out.is_floating_point():
        return _steps(walk, func, out, x)
    if walk.kind(x) == Kind.WEIGHT and layout(out) == layout(x) and not _repeats(x):
        slot = walk.slot(x)
        start = out.storage_offset() - (x.storage_offset() - slot.start)
        return Memory(Kind.WEIGHT, slots=[Slot(slot.name, start)])
    return walk.hidden(x)


def _repeats(t: torch.Tensor) -> bool:
    return any(s == 0 and n > 1 for n, s in layout(t))


def _copied_into(walk: Walk, func, out, target, source, *args):
    found = walk.placed(source.expand(target.shape))
    return Hidden(found.units, found.depends)


def _pinned(walk: Walk, func, out, x, *args, **kwargs):
    """Piecewise linear, but not homogeneous."""
    if any(isinstance(a, torch.Tensor) for a in (*args, *kwargs.values())):
        raise NotFollowed(f"its operation {_shown(func)} has arguments that are not known")
    return _held(walk, func, out, x)


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
    return _held(walk, func, out, x)


def _held(walk: Walk, func, out, x) -> Hidden:
    """What goes into a function of each entry is pinned; what comes out is fixed, but 0 at a
    constant 0 (as of tanh)."""
    value = walk.hidden(x)
    found = walk.pinned(value)
    units = np.full(tuple(out.shape), FIXED)
    if value.units.shape == units.shape and "softmax" not in name_of(func):
        zero = walk.units.are_zeros(value.units) & (out.detach() == 0).cpu().numpy()
        units = walk.units.cut(units, zero)
    return Hidden(units, found.depends)


def _power(walk: Walk, func, out, *args, **kwargs):
    """W → βW may be undone by β^c after a power c, which units do not follow."""
    walk.reason = walk.reason or f"{_shown(func)} is not piecewise linear"
    raise NotFollowed(f"its operation {_shown(func)} may scale with a power")


def _normalized(walk: Walk, func, *args, **kwargs):
    """The weights of units behind it can be scaled as one without any change to the function."""
    walk.reason = walk.reason or f"{_shown(func)} is not piecewise linear"
    raise NotFollowed(DEGENERATE.format(_shown(func)))


def _shown(func) -> str:
    name = name_of(func).strip("_")
    return name.removeprefix("native_").removeprefix("fused_")


def _batch_norm(walk: Walk, func, out, x, weight, bias, mean, var, *settings):
    """In eval mode an affine map of each channel, with statistics that stay as they are."""
    if settings[0] is True or mean is None or _varies(walk, mean):
        return _normalized(walk, func)
    trained = [p is not None and walk.depends(p) for p in (weight, bias)]
    if any(walk.kind(p) == Kind.HIDDEN for p in (weight, bias) if p is not None):
        raise NotFollowed("it computes the weights of a batch norm")
    value, channels = walk.hidden(x), (1, -1, *(1,) * (out.dim() - 2))
    units = walk.fix(value.units, mean.reshape(channels))
    if not any(trained):
        units = walk.fix(units, 0 if bias is None else bias.reshape(channels))
        return Hidden(units, value.depends)
    walk.notes.append("batch norm is taken as in eval mode: its statistics are not rescaled")
    positions = tuple(a for a in range(out.dim()) if a != 1)
    target = source = walk.tied(units, positions, "" if trained[1] else ROWS).ravel()
    if trained[0]:
        target = walk.units.new(out.shape[1])
        walk.weigh(weight, target, source)
    if trained[1]:
        walk.weigh(bias, target, FIXED)
    else:
        target = walk.fix(target, 0 if bias is None else bias)
    names = {walk.slot(p).name for p, own in zip((weight, bias), trained, strict=True) if own}
    return Hidden(
        np.broadcast_to(target.reshape(channels), tuple(out.shape)), value.depends | names
    )


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
    if walk.kind(which) != Kind.CONSTANT:
        losing = BRANCH if walk.kind(which) == Kind.VARIES else ""
        return walk.together(out.shape, values, losing)
    # Each 0 is one by itself.
    parts = [walk.placed(torch.as_tensor(v).expand(out.shape)) for v in values]
    units = np.where(which.numpy(), *(part.units for part in parts))
    return Hidden(units, parts[0].depends | parts[1].depends)


def _masked(walk: Walk, func, out, x, mask, value):
    return _where(walk, func, out, mask, value, x)


def _product(walk: Walk, func, out, one, other):
    if not (walk.depends(one) and walk.depends(other)):
        value, factor = (one, other) if walk.depends(one) else (other, one)
        if walk.kind(value) == Kind.WEIGHT and not _varies(walk, factor):
            return _copied(walk, func, out, value)
        found = walk.hidden(value)
        units = np.broadcast_to(found.units, tuple(out.shape))
        return Hidden(walk.times(units, factor), found.depends)
    weights = [t for t in (other, one) if walk.kind(t) == Kind.WEIGHT]
    if not weights:
        return _of_two_values(walk, walk.hidden(one), walk.hidden(other))
    weight = weights[0]
    value = walk.hidden(one if weight is other else other)
    return _scaled_by(walk, Hidden(np.broadcast_to(value.units, out.shape), value.depends), weight)


def _varies(walk: Walk, value) -> bool:
    return isinstance(value, torch.Tensor) and walk.kind(value) != Kind.CONSTANT


def _of_two_values(walk: Walk, one: Hidden, other: Hidden) -> Hidden:
    """Entry by entry, still affine in each weight where the two have none in common. Where one is
    held, the other goes through."""
    depends = _apart(walk, one, other)
    shape = np.broadcast_shapes(one.units.shape, other.units.shape)
    for held, free in ((one, other), (other, one)):
        if walk.units.held(held.units):
            walk.units.pin(held.units, EXCHANGED)
            return Hidden(np.broadcast_to(free.units, shape), depends)
    _exchanged(walk, one, other)
    return Hidden(np.full(shape, FIXED), depends)


def _apart(walk: Walk, one: Hidden, other: Hidden) -> frozenset[str]:
    """What a product of two values depends on, which must have no weight in common."""
    if one.depends & other.depends:
        walk.reason = walk.reason or "it multiplies two of its values"
        raise NotFollowed("it multiplies two of its values")
    return one.depends | other.depends


def _exchanged(walk: Walk, *values: Hidden) -> None:
    """Of two values that are multiplied one may be scaled up and the other down."""
    for value in values:
        walk.units.pin(value.units, EXCHANGED)


def _scaled_by(walk: Walk, value: Hidden, weight: torch.Tensor) -> Hidden:
    """γ ⊙ z: a weight from z to the product, wherever γ is repeated."""
    name = walk.slot(weight).name
    if name in value.depends:
        return _of_two_values(walk, value, walk.hidden(weight))
    spread = weight.detach().expand(value.units.shape)
    own = without_repeats(spread)
    axes = tuple(a for a in range(own.dim()) if own.size(a) != spread.size(a))
    source = walk.tied(value.units, axes, SHARED) if axes else value.units
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
    at = 1 if name_of(func) == "topk" else 0
    dims = args[at] if len(args) > at else -1 if dim is None else dim
    found = walk.hidden(x)
    first = walk.tied(found.units, _axes(x, dims))
    return Hidden(np.broadcast_to(first, tuple(out.shape)), found.depends)


def _argument(walk: Walk, func, out, x, *args, **kwargs):
    walk.tied(walk.hidden(x).units, _axes(x, args[0] if args else None))
    return Kind.STEPS


def _spatial(axes: int) -> Rule:
    """Pooling, resizing: all positions of a channel are taken to scale together."""

    def rule(walk: Walk, func, out, x, *args, **kwargs):
        found = walk.hidden(x)
        losing = "" if out.shape[-axes:].numel() == 1 else WINDOWS
        first = walk.tied(found.units, tuple(range(x.dim() - axes, x.dim())), losing)
        return Hidden(np.broadcast_to(first, tuple(out.shape)), found.depends)

    return rule


def _moved(walk: Walk, func, out, *args, **kwargs):
    """Entries are moved or repeated: the operation is applied to the numbers of their units."""
    tensors = tensors_in((args, kwargs))
    values = [t for t in tensors if t.is_floating_point()]
    if any(_varies(walk, t) for t in tensors if not t.is_floating_point()):
        raise NotFollowed(f"its operation {_shown(func)} picks entries by their values")
    placed = {id(t): walk.placed(t) for t in values}
    depends: frozenset[str] = frozenset().union(*(p.depends for p in placed.values()))

    def numbers(a):
        found = placed.get(id(a)) if isinstance(a, torch.Tensor) else None
        return a if found is None else torch.tensor(found.units + 1, dtype=torch.float64)

    units = func(*tree_map(numbers, args), **tree_map(numbers, kwargs)).long().numpy() - 1
    around = units == -1  # Zeros that it puts beside them scale with anything.
    units[around] = walk.units.zeros(int(around.sum()))
    return Hidden(units, depends)


def _padded(walk: Walk, func, out, x, pad, value=0):
    found = walk.hidden(x)
    numbers = torch.tensor(found.units, dtype=torch.float64)
    units = func(numbers, pad, -1.0).long().numpy()
    around = units == -1
    units[around] = FIXED if value else walk.units.zeros(int(around.sum()))
    return Hidden(units, found.depends)


def _embedded(walk: Walk, func, out, weight, index, *args, **kwargs):
    """One row of the weight for each index: columns are units."""
    if walk.kind(weight) != Kind.WEIGHT or walk.depends(index):
        raise NotFollowed("it looks values up in a table that is not a parameter")
    if walk.kind(index) == Kind.CONSTANT and index.shape + weight.shape[1:] == out.shape:
        table = walk.hidden(weight)  # The same rows for all samples: entries that are moved.
        return Hidden(table.units[index.numpy()], table.depends)
    target = walk.units.new(weight.shape[1])
    walk.weigh(weight, target, FIXED)
    return Hidden(np.broadcast_to(target, tuple(out.shape)), frozenset({walk.slot(weight).name}))


def _leaky(walk: Walk, func, out, x, slope):
    """max(x, 0) + a min(x, 0) scales with x for any a, which stays as it is."""
    found = walk.hidden(x)
    if not walk.depends(slope):
        return found
    own, name = without_repeats(slope), walk.slot(slope).name
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
    # A bias for each column ties the rows.
    ties = bias is not None and bias.dim() == 1 < out.dim() and walk.depends(bias)
    product = _contracted(walk, _batched(one), _batched(other), "" if ties else ROWS)
    found = Hidden(product.units.reshape(tuple(out.shape)), product.depends)
    if bias is None:
        return found
    if not walk.depends(bias):
        return Hidden(walk.fix(found.units, bias), found.depends)
    other_part = walk.hidden(bias)
    walk.units.tie(found.units, other_part.units, by_entry=True)
    units = walk.units.either(found.units, other_part.units)
    return Hidden(units, found.depends | other_part.depends)


def _batched(t: torch.Tensor) -> torch.Tensor:
    return t.detach().unsqueeze(0) if t.dim() == 2 else t.detach()


def _contracted(walk: Walk, one: torch.Tensor, other: torch.Tensor, losing: str) -> Hidden:
    """(B, I, K) · (B, K, J); `losing` where rows of the first have scales of their own."""
    kinds = walk.kind(one), walk.kind(other)
    shape = one.shape[0], one.shape[1], other.shape[2]
    if kinds[1] == Kind.WEIGHT:
        return _weighted(walk, shape, walk.placed(one), other, losing)
    if kinds[0] == Kind.WEIGHT:
        value = walk.placed(other)
        turned = Hidden(value.units.transpose(0, 2, 1), value.depends)
        found = _weighted(walk, (shape[0], shape[2], shape[1]), turned, one.transpose(1, 2), ROWS)
        return Hidden(found.units.transpose(0, 2, 1), found.depends)
    value, by, axis = (one, other, 2) if kinds[0] == Kind.HIDDEN else (other, one, 1)
    found, losing = walk.hidden(value), ""
    if kinds[0] == kinds[1] == Kind.HIDDEN:
        depends = _apart(walk, found, factor := walk.hidden(by))
        if walk.units.held(found.units):
            found, factor, axis = factor, found, 1
        if not walk.units.held(factor.units):
            _exchanged(walk, found, factor)
            return Hidden(np.full(shape, FIXED), depends)
        walk.units.pin(factor.units, EXCHANGED)
        found = Hidden(found.units, depends)
    elif bool((by == 0).any()):
        if walk.kind(by) == Kind.CONSTANT:
            return Hidden(_mixed(walk, found.units, (by != 0).cpu().numpy(), axis), found.depends)
        losing = SPARSE
    units = walk.tied(found.units, (axis,), losing)
    return Hidden(np.broadcast_to(units, shape), found.depends)


def _mixed(walk: Walk, units: np.ndarray, by: np.ndarray, axis: int) -> np.ndarray:
    """Units of a value times constants, or of constants times the value, along its `axis`."""
    if axis == 2:
        return walk.units.mixed(units, by)
    turned = walk.units.mixed(units.transpose(0, 2, 1), by.transpose(0, 2, 1))
    return turned.transpose(0, 2, 1)


def _weighted(walk: Walk, shape, value: Hidden, weight: torch.Tensor, losing: str) -> Hidden:
    """z (B, I, K) times W (B, K, J); W may be one for all of B."""
    own, name = without_repeats(weight), walk.slot(weight).name
    if name in value.depends:
        raise NotFollowed(f"{name} is used more than once")
    if own.shape[1:] != weight.shape[1:]:
        raise NotFollowed("it multiplies by a matrix of repeated weights")
    rows = (1,) if own.shape[0] == weight.shape[0] else (0, 1)
    source = walk.tied(value.units, rows, losing)[:, 0, :, None]
    target = walk.units.new(own.shape[0], 1, own.shape[2])
    walk.weigh(own, target, source)
    return Hidden(np.broadcast_to(target, shape), value.depends | {name})


def _convolution(walk: Walk, func, out, x, weight, bias, stride, *settings):
    """Transposed, a weight has the inputs' channels first."""
    _, dilation, turned, _, groups = settings
    value = walk.placed(x)
    spatial = tuple(range(out.dim() - len(stride), out.dim()))
    met = turned or all(
        by == 1 and (size == 1 or out.shape[a] > d)
        for by, size, d, a in zip(stride, weight.shape[2:], dilation, spatial, strict=True)
    )
    # With a bias for each channel positions that meet the same weights are tied.
    losing = "" if met and bias is not None and walk.depends(bias) else ROWS
    source = walk.tied(value.units, (0, *spatial), losing)[0].reshape(groups, -1)
    if walk.kind(weight) == Kind.WEIGHT:
        target, depends = _convolved(walk, weight, source, groups, turned, len(spatial))
    elif walk.kind(weight) == Kind.HIDDEN:
        kernel = walk.hidden(weight)
        depends = _apart(walk, value, kernel)
        _exchanged(walk, value, kernel)
        target = np.full(out.shape[1], FIXED)
    else:
        depends = frozenset()
        losing = SPARSE if bool((weight == 0).any()) else ""
        target = np.repeat(walk.tied(source, (1,), losing), out.shape[1] // groups, axis=1).ravel()
        target = target if turned else walk.times(target, weight.flatten(1).any(1))
    if bias is not None:
        target, more = _biased(walk, bias, target)
        depends |= more
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


def _biased(walk: Walk, bias, target: np.ndarray) -> tuple[np.ndarray, frozenset[str]]:
    if not walk.depends(bias):
        return walk.fix(target, bias), frozenset()
    part = walk.hidden(bias)
    walk.units.tie(target, part.units)
    return walk.units.either(target, part.units), part.depends


def _of(names: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, Rule] = {
    **_of("relu leaky_relu abs", _same),
    **_of("neg clone _to_copy contiguous positive lift_fresh", _copied),
    **_of("hardtanh hardsigmoid hardshrink softshrink", _pinned),
    **_of("threshold clamp clamp_min clamp_max", _bounded),
    **_of("_prelu_kernel", _leaky),
    **_of(
        "gelu silu elu celu softplus sigmoid tanh mish log_sigmoid_forward hardswish exp exp2 "
        "expm1 log log1p log2 sin cos tan erf erfc sinh cosh atan asinh _softmax _safe_softmax "
        "_log_softmax logsumexp "
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
