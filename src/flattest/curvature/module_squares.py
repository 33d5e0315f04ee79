"""The diagonal of the Gauss–Newton matrix and its trace, layer by layer, exactly, without probes.

With S_i S_iᵀ = ∇²_f ℓ_i (columns s_ic, signs σ_ic for losses that curve down somewhere) the
diagonal is (1/n) Σ_i Σ_c σ_ic (J_iᵀ s_ic)². One backward pass for each c gives δ = ∂(s_ic · f)/∂h
at the output h of every layer; from it and the layer's input the squares follow (`module_layers`),
or for the trace the squared lengths alone, which cost less. What is used outside of such layers, or
in several places, gets its gradients from the whole module, sample by sample. On piecewise linear
networks this is the diagonal of ∇²L itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from flattest.curvature.module_layers import form_of, is_known
from flattest.curvature.module_losses import Factor

Sums = dict[nn.Parameter, torch.Tensor]


class Call(NamedTuple):
    """One call of a layer: what went in, and where its output stands in the graph."""

    layer: nn.Module
    z: torch.Tensor
    output: GradientEdge


@contextmanager
def calls(module: nn.Module, layers: frozenset[nn.Module] | None = None) -> Iterator[list[Call]]:
    """Notes the calls of these layers, or of all that have trained parameters, inside."""
    found: list[Call] = []

    def keep(layer, args, output):
        # What follows may work in place: on outputs, whose edge stays what it is now, but not on
        # inputs, which autograd needs for the layer's own gradient (making the operator tried it).
        if len(args) == 1 and isinstance(args[0], torch.Tensor) and output.requires_grad:
            found.append(Call(layer, args[0].detach(), get_gradient_edge(output)))

    chosen = filter(is_known, module.modules()) if layers is None else layers
    with ExitStack() as hooks:
        for layer in chosen:
            if any(p.requires_grad for p in layer.parameters()):
                hooks.enter_context(layer.register_forward_hook(keep))
        yield found


def sample_by_sample(
    f: torch.Tensor, of_one: list[Call], of_few: list[Call]
) -> frozenset[nn.Module]:
    """Of the calls in a run on one sample, to outputs f, and on a few, that one first: the layers
    that are called once, with samples along the first axis in their order, and whose parameters are
    used nowhere else. A layer whose first axis is another, which in a batch may be as long by
    chance, is told apart by this."""
    times, used = Counter(call.layer for call in of_one), _uses(f)
    first = {call.layer: call.z[:1] for call in of_few if call.z.dim()}
    return frozenset(
        call.layer
        for call in of_one
        if times[call.layer] == 1
        and call.z.dim() > 1
        and len(call.z) == 1
        and _close(first.get(call.layer), call.z)
        and all(used[p] == 1 for p in call.layer.parameters() if p.requires_grad)
    )


def _close(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    same = one is not None and one.shape == other.shape
    return same and torch.allclose(one, other, 1e-4, 1e-4 * float(other.abs().max()))


def _uses(f: torch.Tensor) -> Counter[torch.Tensor]:
    """How often each parameter is used on the way to f."""
    todo, known, found = [f.grad_fn], {f.grad_fn}, Counter[torch.Tensor]()
    while todo:
        for node, _ in todo.pop().next_functions:
            if hasattr(node, "variable"):
                found[node.variable] += 1
            elif node is not None and node not in known:
                known.add(node)
                todo.append(node)
    return found


class _Affine(TorchFunctionMode):
    """Batch norm by its statistics as one product, whose backward pass is one too; its parameters'
    gradients come from its input (`Scale`)."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is F.batch_norm:
            return _batch_norm(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _batch_norm(
    x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5
) -> torch.Tensor:
    if training or mean is None:
        return F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)
    scale = torch.rsqrt(var + eps)
    scale = scale if weight is None else scale * weight.detach()
    shift = -mean * scale if bias is None else bias.detach() - mean * scale
    shape = (-1, *(1,) * (x.dim() - 2))
    return x * scale.reshape(shape) + shift.reshape(shape)


@dataclass(frozen=True)
class GaussNewton:
    """Σ_i Σ_c σ_ic (J_iᵀ s_ic)² of a module, whose `layers` take samples one by one.

    `run` gives the outputs, `factor` the columns s and signs σ for outputs and targets. At most
    `most_values` numbers δ of all layers are held at once, or those of one column, and
    `most_entries` of a layer's gradients, or one sample's.
    """

    module: nn.Module
    run: Callable[[nn.Module, Any], torch.Tensor]
    layers: frozenset[nn.Module]
    factor: Callable[[torch.Tensor, torch.Tensor], Factor]
    most_values: int
    most_entries: int

    def add_squares(self, x: Any, y: torch.Tensor, diagonal: Sums) -> None:
        """Adds the diagonal over the samples x."""
        run = self._run(x, len(y))
        for forms, deltas, signs in self._passes(run, y):
            for form, delta in zip(forms, deltas, strict=True):
                for parameter, squares in form.squares(delta, signs, self.most_entries):
                    _add(diagonal, parameter, squares)
        for _, sign, gradients in self._rest(run, x, y):
            for parameter, gradient in gradients:
                _add(diagonal, parameter, sign * gradient.square())

    def add_norms(self, x: Any, y: torch.Tensor, traces: Sums) -> None:
        """Adds the trace over the samples x, by parameter."""
        run = self._run(x, len(y))
        for forms, deltas, signs in self._passes(run, y):
            for form, delta in zip(forms, deltas, strict=True):
                for parameter, norms in form.norms(delta, self.most_entries):
                    _add(traces, parameter, (norms * signs).sum())
        for _, sign, gradients in self._rest(run, x, y):
            for parameter, gradient in gradients:
                _add(traces, parameter, sign * gradient.square().sum(dtype=torch.float64))

    def lengths(self, x: Any, y: torch.Tensor) -> torch.Tensor:
        """σ_ic ‖J_iᵀ s_ic‖² (n, C) over all parameters. `factor` is asked again for the parameters
        that no layer holds, and may then give other columns, as many."""
        run = self._run(x, len(y))
        blocks = [
            sum(
                norms
                for form, delta in zip(forms, deltas, strict=True)
                for _, norms in form.norms(delta, self.most_entries)
            )
            * signs
            for forms, deltas, signs in self._passes(run, y)
        ]
        found = torch.cat(blocks, 1) if blocks else torch.zeros(())
        rest: dict[tuple[int, int], torch.Tensor] = {}
        for at, sign, gradients in self._rest(run, x, y):
            rest[at] = sign * sum(g.square().sum(dtype=torch.float64) for _, g in gradients)
        return found + torch.stack([*rest.values()]).reshape(len(y), -1) if rest else found

    def gradients(self, x: Any, y: torch.Tensor):
        """J_iᵀ s_ic by parameter, of all that no layer holds, with its sign."""
        for _, sign, gradients in self._rest(_Run(torch.empty(0), []), x, y):
            yield sign, gradients

    def _run(self, x: Any, samples: int) -> "_Run":
        if not self.layers:
            return _Run(torch.empty(0), [])
        with calls(self.module, self.layers) as found, torch.enable_grad(), _Affine():
            f = self.run(self.module, x)
        times = Counter(call.layer for call in found)
        return _Run(f, [c for c in found if len(c.z) == samples and times[c.layer] == 1])

    def _passes(self, run: "_Run", y: torch.Tensor):
        """Forms of the layers, and for some columns at a time δ at each of them, with signs."""
        if not run.calls:
            return
        columns, signs = self.factor(run.f.detach(), y)
        forms = [form_of(call.layer, call.z) for call in run.calls]
        outputs = [call.output for call in run.calls]
        at_once = max(1, self.most_values // sum(call.z.numel() for call in run.calls))
        last = columns.shape[2] - 1
        for start in range(0, last + 1, at_once):
            passes = [
                torch.autograd.grad(
                    run.f, outputs, columns[:, :, c].reshape(run.f.shape), retain_graph=c < last
                )
                for c in range(start, min(start + at_once, last + 1))
            ]
            yield forms, zip(*passes, strict=True), signs[:, start : start + at_once]

    def _rest(self, run: "_Run", x: Any, y: torch.Tensor):
        """Gradients of the parameters that none of the layers holds, of one sample and one column
        at a time: which, its sign, and by parameter."""
        done = {p for call in run.calls for p in call.layer.parameters()}
        rest = [p for p in self.module.parameters() if p.requires_grad and p not in done]
        for i in range(len(y) if rest else 0):
            with torch.enable_grad():
                f = self.run(self.module, tree_map(lambda t, i=i: t[i : i + 1], x))
            columns, signs = self.factor(f.detach(), y[i : i + 1])
            for c in range(columns.shape[2]):
                s = columns[:, :, c].reshape(f.shape)
                found = torch.autograd.grad(f, rest, s, retain_graph=True, materialize_grads=True)
                yield (i, c), signs[0, c], zip(rest, found, strict=True)


class _Run(NamedTuple):
    """Outputs, with their graph, and the calls of layers that led to them."""

    f: torch.Tensor
    calls: list[Call]


def _add(sums: Sums, parameter: nn.Parameter, value: torch.Tensor) -> None:
    before = sums.get(parameter)
    sums[parameter] = value.double() if before is None else before + value
