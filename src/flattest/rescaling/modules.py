"""What a module computes, read from its torch.fx graph: is f affine in every single weight on each
linear piece, and which hidden units can be rescaled?

The graph is walked with arrays of unit numbers (see `units`) in place of values, for one
sample: shape operations are simply applied to them.
"""

import operator
from collections import Counter
from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional as F

from flattest.errors import first_line
from flattest.rescaling.units import DEGENERATE, FIXED, Ends, NotFollowed, Structure, Units


def structure_of(module: nn.Module, x: torch.Tensor) -> Structure:
    """Walks the module's graph for the sample x (a batch of one)."""
    walk = _Walk(module)
    try:
        if _is_chain(module):
            walk.run_chain(module, x)
        else:
            walk.run(_graph(module), x)
    except NotFollowed as stop:
        return Structure(str(stop), exact=False, reason=walk.reason or str(stop))
    return Structure(
        walk.units, not walk.reason, walk.reason, tuple(dict.fromkeys(walk.notes)), walk.entries
    )


def _is_chain(module: nn.Module) -> bool:
    """Known layers one after another, no parameter twice, which need no tracing."""
    if type(module) is not nn.Sequential or any(type(layer) not in MODULES for layer in module):
        return False
    parameters = [id(p) for layer in module for p in layer.parameters()]
    return len(parameters) == len(set(parameters))


def _graph(module: nn.Module) -> fx.Graph:
    """What the module does; no two nodes use one parameter, be it through modules that share it."""
    try:
        graph = fx.Tracer().trace(module)
    except Exception as error:  # Whatever a user's forward raises under tracing.
        raise NotFollowed(f"its graph cannot be traced ({first_line(error)})") from None
    used = Counter(id(p) for node in graph.nodes for p in _parameters_of(node, module))
    if repeated := [name for name, p in module.named_parameters() if used[id(p)] > 1]:
        raise NotFollowed(f"{repeated[0]} is used more than once")
    return graph


def _parameters_of(node: fx.Node, module: nn.Module) -> list[nn.Parameter]:
    if node.op == "call_module":
        return list(module.get_submodule(str(node.target)).parameters())
    if node.op == "get_attr":
        value = operator.attrgetter(str(node.target))(module)
        return [value] * len(node.users) if isinstance(value, nn.Parameter) else []
    return []


# A rule maps (walk, module or function, unit array of the input) to the unit array of the output.
Rule = Callable[..., Any]


class _Walk:
    """Collects the units, why the network is not piecewise linear, and how many values it has."""

    def __init__(self, module: nn.Module):
        self.module, self.units = module, Units()
        self.reason, self.entries = "", 1
        self.notes: list[str] = []
        self.names = {id(p): name for name, p in module.named_parameters()}

    def run_chain(self, module: nn.Sequential, x: torch.Tensor) -> None:
        value = torch.full(x.shape, FIXED)
        # named_children() would leave out a layer that comes again, such as one ReLU for all.
        for name, layer in module._modules.items():
            value = self.call_module(name, layer, value).contiguous()
            self.entries += value.numel()
        self.output(value)

    def run(self, graph: fx.Graph, x: torch.Tensor) -> None:
        values: dict[fx.Node, Any] = {}
        for node in graph.nodes:
            args = fx.node.map_arg(node.args, values.__getitem__)
            kwargs = fx.node.map_arg(node.kwargs, values.__getitem__)
            value = self.visit(node, args, kwargs, x)
            if isinstance(value, torch.Tensor):
                self.entries += value.numel()
                # The network's own values are contiguous where ours may be expanded.
                value = value.contiguous()
            values[node] = value

    def visit(self, node: fx.Node, args, kwargs, x):
        match node.op:
            case "placeholder":
                return torch.full(x.shape, FIXED)
            case "output":
                return self.output(args[0])
            case "call_module":
                module = self.module.get_submodule(str(node.target))
                return self.call_module(str(node.target), module, *args, **kwargs)
            case "call_function" | "call_method":
                return self.call(node.target, args, kwargs)
        return self.attribute(str(node.target))

    def attribute(self, name: str) -> torch.Tensor:
        """A buffer or constant tensor; parameters that no known layer holds are not followed."""
        value = operator.attrgetter(name)(self.module)
        if isinstance(value, nn.Parameter) or not isinstance(value, torch.Tensor):
            raise NotFollowed(f"it uses {name} directly, not through a layer")
        return torch.full(value.shape, FIXED)

    def output(self, value):
        if not isinstance(value, torch.Tensor):
            raise NotFollowed("it returns more than one tensor")
        self.units.pin(value.numpy())

    def call_module(self, name: str, module: nn.Module, *args, **kwargs):
        if (rule := MODULES.get(type(module))) is None:
            raise NotFollowed(f"layer {name} is a {type(module).__name__}, which is not known")
        return rule(self, module, *args, **kwargs)

    def call(self, function, args, kwargs):
        if function in SHAPES or not _has_tensor([*args, *kwargs.values()]):
            if isinstance(function, str):
                return getattr(args[0], function)(*args[1:], **kwargs)
            return function(*args, **kwargs)
        name = getattr(function, "__name__", function)
        if (rule := FUNCTIONS.get(function)) is None or not _has_tensor(args):
            raise NotFollowed(f"its operation {name} is not known")
        try:
            signature(rule).bind(self, function, *args, **kwargs)
        except TypeError:
            raise NotFollowed(f"its operation {name} has arguments that are not known") from None
        return rule(self, function, *args, **kwargs)

    def weigh(self, parameter: nn.Parameter | None, target, source) -> None:
        """Notes between which units a parameter stands."""
        if parameter is not None:
            self.units.ends[self.names[id(parameter)]] = Ends(target, source)

    def channels(self, x: torch.Tensor, axis: int) -> np.ndarray:
        """One unit for each index of `axis`: all positions along other axes are tied to it."""
        units = x.movedim(axis, -1).reshape(-1, x.shape[axis]).numpy()
        self.units.tie(units, units[:1])
        return units[0]


def _has_tensor(value) -> bool:
    if isinstance(value, list | tuple):
        return any(_has_tensor(v) for v in value)
    return isinstance(value, torch.Tensor)


def _same(walk: _Walk, module, x, *args, **kwargs):
    """A positively homogeneous function of each entry, or none at all."""
    return x


def _linear(walk: _Walk, module: nn.Linear, x):
    source = walk.channels(x, -1)
    target = walk.units.new(module.out_features)
    walk.weigh(module.weight, target[:, None], source[None, :])
    walk.weigh(module.bias, target, np.array(FIXED))
    return torch.from_numpy(target).expand(*x.shape[:-1], -1)


def _convolution(walk: _Walk, module: nn.modules.conv._ConvNd, x):
    source = walk.channels(x, 1).reshape(module.groups, 1, -1)
    target = walk.units.new(module.out_channels)
    per_group = module.out_channels // module.groups
    # Output channels of a group see only that group's input channels.
    sources = np.broadcast_to(source, (module.groups, per_group, source.shape[-1]))
    ones = (1,) * len(module.kernel_size)
    walk.weigh(
        module.weight,
        target.reshape(-1, 1, *ones),
        sources.reshape(module.out_channels, -1, *ones),
    )
    walk.weigh(module.bias, target, np.array(FIXED))
    shape = _output_shape(module, x)
    return torch.from_numpy(target).reshape(1, -1, *ones).expand(1, -1, *shape[2:])


def _output_shape(module: nn.Module, x: torch.Tensor) -> torch.Size:
    """The shape of module(x), found on PyTorch's meta device, which computes nothing."""
    empty = {name: p.to("meta") for name, p in module.named_parameters()}
    output = torch.func.functional_call(module, empty, (x.to("meta", torch.float64),))
    if not isinstance(output, torch.Tensor):
        raise NotFollowed(f"{_name(module)} returns more than one tensor")
    return output.shape


def _batch_norm(walk: _Walk, module: nn.modules.batchnorm._BatchNorm, x):
    """In eval mode an affine map of each channel, with statistics that stay as they are."""
    walk.units.pin(x.numpy())
    if not module.affine:
        return torch.full(x.shape, FIXED)
    target = walk.units.new(module.num_features)
    walk.weigh(module.weight, target, np.array(FIXED))
    walk.weigh(module.bias, target, np.array(FIXED))
    walk.notes.append("batch norm is taken as in eval mode: its statistics are not rescaled")
    ones = (1,) * (x.dim() - 2)
    return torch.from_numpy(target).reshape(1, -1, *ones).expand(x.shape)


def _pool(walk: _Walk, module: nn.Module, x):
    """Positions that are pooled scale together; here all of a channel."""
    units = x.flatten(2)
    walk.units.tie(units.numpy(), units[..., :1].numpy())
    shape = _output_shape(module, x)
    return units[..., 0].reshape(*x.shape[:2], *(1,) * (x.dim() - 2)).expand(shape)


def _pinned(walk: _Walk, module, x, *args, **kwargs):
    """Piecewise linear, but not homogeneous."""
    walk.units.pin(x.numpy())
    return torch.full(x.shape, FIXED)


def _smooth(walk: _Walk, module, x, *args, **kwargs):
    walk.reason = walk.reason or f"{_name(module)} is not piecewise linear"
    return _pinned(walk, module, x)


def _normalized(walk: _Walk, module, *args, **kwargs):
    """The weights of units behind it can be scaled as one without any change to the function."""
    walk.reason = walk.reason or f"{_name(module)} is not piecewise linear"
    raise NotFollowed(DEGENERATE.format(_name(module)))


def _name(module) -> str:
    return type(module).__name__ if isinstance(module, nn.Module) else module.__name__


def _pool_function(module_type: type[nn.Module]) -> Rule:
    def rule(walk: _Walk, function, x, *args, **kwargs):
        kwargs.pop("training", None)
        return _pool(walk, module_type(*args, **kwargs), x)

    return rule


def _sum(walk: _Walk, function, one, other, *, alpha=1):
    """Both ends of a residual sum scale together; a constant that is added fixes them."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        one, other = torch.broadcast_tensors(one, other)
        walk.units.tie(one.numpy(), other.numpy())
        return one
    tensor, constant = (one, other) if isinstance(one, torch.Tensor) else (other, one)
    return tensor if constant == 0 else _pinned(walk, None, tensor)


def _product(walk: _Walk, function, one, other):
    tensor, factor = (one, other) if isinstance(one, torch.Tensor) else (other, one)
    if isinstance(factor, torch.Tensor):
        raise NotFollowed("it multiplies two of its values")
    return tensor


def _quotient(walk: _Walk, function, one, other):
    if not isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        raise NotFollowed("it divides by one of its values")
    return one


def _reduction(walk: _Walk, function, x, dim=None, keepdim=False, **kwargs):
    """A sum or mean over axes: what is summed scales together."""
    dims = tuple(range(x.dim())) if dim is None else dim
    walk.units.tie(x.numpy(), x.amin(dim=dims, keepdim=True).numpy())
    return x.amin(dim=dims, keepdim=keepdim)


def _functional_dropout(walk: _Walk, function, x, p=0.5, training=True, inplace=False):
    if training and p > 0:
        raise NotFollowed("it drops units at random")
    return x


_KEEP = (nn.Identity, nn.ReLU, nn.LeakyReLU, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_SHAPE = (nn.Flatten, nn.Unflatten, nn.PixelShuffle, nn.PixelUnshuffle, nn.ChannelShuffle)
_POOLS = (
    *(nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d),
)
_CLIPPED = (nn.ReLU6, nn.Hardtanh, nn.Hardsigmoid)
_SMOOTH = (
    *(nn.GELU, nn.SiLU, nn.ELU, nn.CELU, nn.SELU, nn.Softplus, nn.Sigmoid, nn.Tanh, nn.Mish),
    *(nn.LogSigmoid, nn.Softsign, nn.Tanhshrink, nn.Hardswish),
)
_NORMALIZATIONS = (
    *(nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)

MODULES: dict[type, Rule] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    **dict.fromkeys(_KEEP, _same),
    **dict.fromkeys(_SHAPE, lambda walk, module, x: module(x)),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(_CLIPPED, _pinned),
    **dict.fromkeys(_SMOOTH, _smooth),
    **dict.fromkeys(_NORMALIZATIONS, _normalized),
}
FUNCTIONS: dict[Any, Rule] = {
    **dict.fromkeys(
        (F.relu, torch.relu, F.leaky_relu, "relu", "relu_", operator.neg, torch.neg, "neg"),
        _same,
    ),
    **dict.fromkeys(("contiguous", "clone", torch.clone), _same),
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), _sum),
    **dict.fromkeys((operator.sub, operator.isub, torch.sub, "sub", "sub_"), _sum),
    **dict.fromkeys((operator.mul, operator.imul, torch.mul, "mul", "mul_"), _product),
    **dict.fromkeys((operator.truediv, torch.div, "div", "div_"), _quotient),
    **dict.fromkeys((torch.mean, torch.sum, "mean", "sum"), _reduction),
    **dict.fromkeys((F.gelu, F.silu, F.elu, F.softplus, F.sigmoid, F.tanh), _smooth),
    **dict.fromkeys((torch.sigmoid, torch.tanh), _smooth),
    **dict.fromkeys((F.layer_norm, F.group_norm, F.rms_norm), _normalized),
    **dict.fromkeys((F.instance_norm, F.normalize), _normalized),
    F.dropout: _functional_dropout,
    F.max_pool1d: _pool_function(nn.MaxPool1d),
    F.max_pool2d: _pool_function(nn.MaxPool2d),
    F.avg_pool1d: _pool_function(nn.AvgPool1d),
    F.avg_pool2d: _pool_function(nn.AvgPool2d),
    F.adaptive_avg_pool1d: _pool_function(nn.AdaptiveAvgPool1d),
    F.adaptive_avg_pool2d: _pool_function(nn.AdaptiveAvgPool2d),
}
# Applied to the unit numbers as they are.
SHAPES = {
    *(torch.flatten, torch.reshape, torch.permute, torch.transpose, torch.squeeze),
    *(torch.unsqueeze, torch.cat, torch.stack, torch.chunk, torch.split, operator.getitem, getattr),
    *("flatten", "reshape", "view", "permute", "transpose", "squeeze", "unsqueeze", "size", "dim"),
    *("chunk", "split", "expand", "t"),
}
