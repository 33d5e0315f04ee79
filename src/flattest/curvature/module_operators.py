"""The operator of a PyTorch module's ∇²L on its data, batch by batch, on a float64 copy."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map

from flattest.curvature.inputs import attempt
from flattest.curvature.module_batches import Batch, Forward, called, outputs_of
from flattest.curvature.module_copies import scaled
from flattest.curvature.module_loaders import Batches
from flattest.curvature.module_losses import MOST_OUTPUTS, Factor, SampleLoss, count
from flattest.curvature.module_runs import exactly
from flattest.curvature.module_second import (
    SECOND_ARE_WRONG,
    add_products,
    second_derivatives_are_right,
)
from flattest.curvature.module_squares import GaussNewton, Sums, calls, sample_by_sample
from flattest.curvature.operator import Operator
from flattest.curvature.progress import progress
from flattest.curvature.result import Interrupted, OfSome
from flattest.errors import FlattestError
from flattest.rescaling.module_walk import Leaving, Seen
from flattest.rescaling.modules import structure_of
from flattest.rescaling.units import ANOTHER_BRANCH, Structure

R = TypeVar("R")
# Backward passes whose results are held together, where there are as many.
_STACKED = 16
# Values of samples whose gradients are compared with differences together.
_MOST_COMPARED = 2**18


@dataclass(eq=False)
class ModuleOperator(Operator):
    """∇²L of `module`, a copy of the one `given`, on the samples in `batches`, batch by batch."""

    given: nn.Module
    module: nn.Module
    batches: Batches
    loss: SampleLoss
    forward: Forward = called
    # Whether a sample's outputs depend on its batch, which is then never cut.
    whole: bool = False
    # Values of all layers that one chunk of samples may hold, in float64: 256 MB. Derivatives take
    # a small multiple of it.
    most_values: int = 2**25
    # Per-sample gradients of a layer held at once: 128 MB in float64, or one sample's where that is
    # more.
    most_gradient_entries: int = 2**24
    dtype: torch.dtype = torch.float64
    # Whether second derivatives were compared with differences on these data.
    compared: bool = False
    parameters: dict[str, nn.Parameter] = field(init=False)

    def __post_init__(self):
        named = self.module.named_parameters()
        self.parameters = {name: p for name, p in named if p.requires_grad}
        self.shapes = {name: p.shape for name, p in self.parameters.items()}
        self.samples = self.batches.samples
        self.device = next(iter(self.parameters.values())).device

    def run(self, x: Any, module: nn.Module | None = None) -> torch.Tensor:
        """The outputs on inputs x."""
        return outputs_of(self.forward, self.module if module is None else module, x)

    def ran(self, x: Any, module: nn.Module | None = None) -> torch.Tensor:
        """The same, in the precision that is computed in. What makes the data, a loader of the
        user's, does not run inside of that."""
        with exactly(self.dtype):
            return self.run(x, module)

    @cached_property
    def structure(self):
        return self._walked[0]

    @cached_property
    def _walked(self) -> tuple[Structure, frozenset[nn.Module], int]:
        """The structure, the layers that take samples one by one, and how many values enter them
        for one sample. Samples of another shape may be computed with in another way."""
        (found, seen, layers, entering), *others = map(self._walk, self.batches.kinds)
        for other, _, only, more in others:
            found = _of_both(found, other)
            layers, entering = layers & only, max(entering, more)
        reason = ""
        if self.whole:
            reason = "a sample's outputs depend on the rest of its batch"
        elif found.exact and not self._has_factor():
            reason = f"the loss has more than {MOST_OUTPUTS} outputs and no closed form"
        elif seen is not None and not self._always_sees(seen, found.entries):
            reason = ANOTHER_BRANCH
            found = replace(found, units=reason)
        return (replace(found, exact=False, reason=reason) if reason else found), layers, entering

    def _walk(self, few: Batch) -> tuple[Structure, list[Any] | None, frozenset[nn.Module], int]:
        """The structure as one of a few samples shows it, the one with the fewest zeros, what its
        run looked at, the layers that take samples one by one, and how many values enter them."""
        few, outputs = self._on_device(few.fullest_first()), list[torch.Tensor]()

        def run(x: Any) -> torch.Tensor:
            outputs.append(self.run(x))
            return outputs[-1]

        with exactly(self.dtype):
            with calls(self.module) as of_one:
                found, seen = structure_of(self.parameters, few.rows(0, 1).x, run)
            entering = sum(call.z.numel() for call in of_one)
            if self.whole or not outputs or not outputs[0].requires_grad:
                return found, seen, frozenset(), entering
            with calls(self.module) as of_few, torch.enable_grad():
                attempt("The module fails on these inputs", self.run, few.x)
        return found, seen, sample_by_sample(outputs[0], of_one, of_few), entering

    def _on_device(self, batch: Batch) -> Batch:
        return batch.on(self.device, self.dtype)

    @cached_property
    def _first_outputs(self) -> torch.Tensor:
        """f of the first sample."""
        with exactly(self.dtype), torch.no_grad():
            return self.run(self._on_device(self.batches.first.rows(0, 1)).x)

    @property
    def _outputs(self) -> int:
        return self._first_outputs.numel()

    def _has_factor(self) -> bool:
        return self._outputs <= MOST_OUTPUTS or self.loss.closed(self._first_outputs)

    def always_sees(self, seen: list[Any]) -> bool:
        """Whether the module's code looks at the same values, these, on all the data."""
        return self._always_sees(seen, self.structure.entries)

    def _always_sees(self, seen: list[Any], entries: int) -> bool:
        return all(values == seen for values in self._seen(entries))

    @torch.no_grad()
    def _seen(self, entries: int) -> Iterator[list[Any]]:
        """The values that the module's code looks at, chunk by chunk."""
        for batch in self._cut(entries):
            with exactly(self.dtype), Seen() as mode, Leaving(mode):
                self.run(batch.x)
            yield mode.seen

    def chunks(self) -> Iterator[Batch]:
        return self._cut(self.structure.entries)

    def first_chunk(self) -> Batch:
        return self._on_device(self.batches.first.rows(0, self._rows(self.structure.entries)))

    def _rows(self, entries: int) -> int:
        """How many samples are run together."""
        return self.samples if self.whole else max(1, self._most_values // entries)

    def _cut(self, entries: int, batches: Batches | None = None) -> Iterator[Batch]:
        rows = self._rows(entries)
        chosen = self.batches if batches is None else batches
        with progress("samples", chosen.samples) as done:
            for batch in chosen:
                for part in batch.split(rows):
                    yield self._on_device(part)
                    done(len(part))

    @property
    def _most_values(self) -> int:
        return self.most_values * 8 // self.dtype.itemsize

    def alike(self, rtol: float, atol: float) -> tuple[float, float]:
        """Tolerances for float64, in the precision that is computed in."""
        coarser = torch.finfo(self.dtype).eps / torch.finfo(torch.float64).eps
        return rtol * coarser**0.7, atol * coarser**0.7

    @cached_property
    def mass(self) -> float:
        """What the sum of all samples' losses is divided by."""
        if (mass := self.loss.mass) is None:
            return 1.0
        if mass is count:
            return float(self.samples)
        total = self._mass_of(self.samples)
        if not total > 0:
            raise FlattestError("The loss counts no sample: all labels are ignored or of weight 0.")
        return total

    @torch.no_grad()
    def _mass_of(self, first: int) -> float:
        """The mass of the first so many samples."""
        if (mass := self.loss.mass) is None:
            return 1.0
        if mass is count:
            return float(first)
        total, left = 0.0, first
        for batch in self.chunks():
            part = batch.rows(0, left)
            total += float(mass(self.ran(part.x), part.y))
            left -= len(part)
            if not left:
                break
        return total

    def shares(self) -> Iterator[torch.Tensor]:
        """L chunk by chunk: the parts add up to that of all samples."""
        for batch in self.chunks():
            yield self._share(batch)

    def _share(self, batch: Batch) -> torch.Tensor:
        mass = self.mass
        with exactly(self.dtype):
            return self.loss.total(self.run(batch.x), batch.y) / mass

    @torch.no_grad()
    def mean_loss(self):
        return float(sum(self.shares()))

    def point(self):
        return self._vector(self.parameters.values())

    def _vector(self, parts: Iterable[torch.Tensor]) -> np.ndarray:
        return torch.cat([part.detach().reshape(-1) for part in parts]).cpu().numpy()

    @contextmanager
    def _moved_to(self, theta: np.ndarray) -> Iterator[None]:
        """Inside, the copy's parameters are θ."""
        before = {name: p.detach().clone() for name, p in self.parameters.items()}
        try:
            self._fill(self.by_name(theta))
            yield
        finally:
            self._fill(before)

    @torch.no_grad()
    def _fill(self, values: Mapping[str, Any]) -> None:
        for name, p in self.parameters.items():
            p.copy_(torch.as_tensor(values[name]))

    def loss_at(self, theta):
        with self._moved_to(theta):
            return self.mean_loss()

    def gradient_at(self, theta):
        total = torch.zeros(self.size, dtype=torch.float64, device=self.device)
        parameters = list(self.parameters.values())
        with self._moved_to(theta):
            for share in self.shares():
                found = torch.autograd.grad(share, parameters, materialize_grads=True)
                total += torch.cat([g.reshape(-1) for g in found])
        return total.cpu().numpy()

    @property
    def parts(self):
        return not self.whole

    def part(self, rows):
        found = copy.copy(self)
        found.batches = self.batches.picked(rows)
        found.samples = len(rows)
        found.__dict__.pop("mass", None)
        return found

    def gauss_newton_form(self, v):
        """Σ_i Σ_c σ_ic (s_ic · J_i v)², J_i v as the derivative of Jᵀu · v in u."""
        direction = torch.tensor(v, dtype=torch.float64, device=self.device)
        total = 0.0
        for batch in self.chunks():
            with exactly():
                f = self.run(batch.x)
                columns, signs = self.loss.factor(f.detach(), batch.y)
                along = self._along(f, direction).reshape(len(f), -1)
            along = torch.einsum("noc,no->nc", columns, along)
            total += float((signs * along.square()).sum())
        return total / self.mass

    def _along(self, f: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        u = torch.zeros_like(f, requires_grad=True)
        given = list(self.parameters.values())
        parts = torch.autograd.grad(f, given, u, create_graph=True, materialize_grads=True)
        flat = torch.cat([part.reshape(-1) for part in parts])
        return torch.autograd.grad(flat @ v, u)[0]

    def gauss_newton_sum(self):
        """Where f is not affine in each weight, from the gradients of one sample after another."""
        if self.structure.exact:
            return super().gauss_newton_sum()
        total = 0.0
        for batch in self.chunks():
            for one in batch.split(1):
                total += self._squared_gradients(one)
        return total / self.mass

    def _squared_gradients(self, one: Batch) -> float:
        """Σ_c σ_c ‖Jᵀ s_c‖² of one sample."""
        parameters, total = list(self.parameters.values()), 0.0
        with exactly():
            f = self.run(one.x)
            columns, signs = self.loss.factor(f.detach(), one.y)
            for c, sign in enumerate(signs[0].tolist()):
                s = columns[:, :, c].reshape(f.shape)
                found = torch.autograd.grad(
                    f, parameters, s, retain_graph=True, materialize_grads=True
                )
                total += sign * sum(float(g.square().sum()) for g in found)
        return total

    def matmat(self, rows):
        """By differentiating twice."""
        if self.dtype != torch.float64:
            raise FlattestError(
                "dtype='float32' is for traces that are exact by first derivatives; this needs "
                "second ones, which are taken in float64."
            )
        self._compare_second()
        v = torch.tensor(rows, dtype=torch.float64, device=self.device)
        total = torch.zeros_like(v)
        for share in self.shares():
            add_products(share, self.parameters, v, total)
        return total.cpu().numpy()

    def _compare_second(self) -> None:
        """On all the data: what is dropped may be so for some samples alone. Few at a time, since
        many have a kink wherever one looks."""
        if self.compared:
            return
        for batch in self.chunks():
            rows = len(batch) if self.whole else max(1, _MOST_COMPARED // self.structure.entries)
            for few in batch.split(rows):
                self._check_second(few)
        self.compared = True

    def _check_second(self, few: Batch) -> None:
        share = partial(self._share, few)
        if second_derivatives_are_right(self.module, self.parameters, share):
            return
        if self.whole or len(few) == 1:
            raise FlattestError(SECOND_ARE_WRONG)
        for half in few.split(-(-len(few) // 2)):
            self._check_second(half)

    @torch.no_grad()
    def gauss_newton_diagonal(self):
        if not self.structure.exact:
            return np.zeros(self.size)

        def gathered(found: Sums, mass: float) -> np.ndarray:
            zeros = {p: torch.zeros_like(p) for p in self.parameters.values() if p not in found}
            found = zeros | found
            parts = [found[p].reshape(-1).cpu().numpy() for p in self.parameters.values()]
            return np.concatenate(parts) / mass

        return self._sums(GaussNewton.add_squares, gathered)

    @torch.no_grad()
    def gauss_newton_trace(self):
        if not self.structure.exact:
            return None

        def gathered(found: Sums, mass: float) -> dict[str, float]:
            return {n: float(found.get(p, 0.0)) / mass for n, p in self.parameters.items()}

        return self._sums(GaussNewton.add_norms, gathered)

    @torch.no_grad()
    def gauss_newton_shares(self, draws=None, rng=None, chosen=None):
        if self.whole:
            raise FlattestError("A sample's outputs depend on the rest of its batch.")
        columns = min(self._outputs, _STACKED) if draws is None else draws
        squares = self._gauss_newton(self.loss.factor if draws is None else self._drawn(draws, rng))
        batches = self.batches if chosen is None else self.batches.picked(chosen)
        found = []
        for batch in self._chunks_for(columns, batches):
            # All gradients of one sample come in one pass, layer by layer they take two.
            one = replace(squares, layers=frozenset()) if len(batch) == 1 else squares
            with exactly(self.dtype):
                lengths = one.lengths(self._laid_out(batch.x), batch.y)
            found.append(lengths if draws is not None else lengths.sum(1, keepdim=True))
        return torch.cat(found).cpu().numpy() / self.mass

    def _drawn(self, draws: int, seeds: np.random.Generator):
        rng = torch.Generator().manual_seed(int(seeds.integers(2**62)))

        def factor(f, y):
            columns = [self.loss.combination(f, y, rng).flatten(1) for _ in range(draws)]
            return Factor(torch.stack(columns, 2), f.new_ones(len(f), draws))

        return factor

    def _gauss_newton(self, factor) -> GaussNewton:
        run = partial(outputs_of, self.forward)
        most = self._most_values, self.most_gradient_entries
        return GaussNewton(self.module, run, self._walked[1], factor, *most)

    def _chunks_for(self, columns: int, batches: Batches) -> Iterator[Batch]:
        """As many samples at a time as leave room for so many backward passes."""
        structure, _, entering = self._walked
        return self._cut(max(structure.entries, entering * columns), batches)

    def _sums(
        self,
        add: Callable[[GaussNewton, Any, torch.Tensor, Sums], None],
        gathered: Callable[[Sums, float], R],
    ) -> R:
        """What `add` sums over all samples, in float64, `gathered` and over the mass; on Ctrl-C
        that of the chunks that are through."""
        mass, seen = self.mass, 0
        total: Sums = {}
        squares = self._gauss_newton(self.loss.factor)
        try:
            for batch in self._chunks_for(min(self._outputs, _STACKED), self.batches):
                here: Sums = {}
                with exactly(self.dtype):
                    attempt(
                        "The module cannot be differentiated",
                        *(add, squares, self._laid_out(batch.x), batch.y, here),
                    )
                # Both at once: what Ctrl-C leaves must belong together.
                total, seen = _added(total, here), seen + len(batch)
        except KeyboardInterrupt:
            if not seen or not (part := self._mass_of(seen)):
                raise
            raise Interrupted(OfSome(gathered(total, part), seen)) from None
        return gathered(total, mass)

    def _laid_out(self, x: Any) -> Any:
        """Images with channels last, where that runs (and faster): in float32."""
        if not self._channels_last:
            return x
        return tree_map(_with_channels_last, x)

    @cached_property
    def _channels_last(self) -> bool:
        """Whether the module runs on images with channels last, to the same outputs: only the order
        in memory is another, which a view may not bear. The weights are laid out so too."""
        convolves = any(isinstance(m, nn.Conv2d) for m in self.module.modules())
        if self.dtype != torch.float32 or self.device.type != "cpu" or not convolves:
            return False
        x = self._on_device(self.batches.first.rows(0, 1)).x
        with exactly(self.dtype):
            f = self.run(x)
            try:
                same = torch.allclose(self.run(tree_map(_with_channels_last, x)), f, 1e-4, 1e-5)
            except RuntimeError:
                return False
        if same:
            self.module.to(memory_format=torch.channels_last)
        return same

    def backward_passes(self):
        return None if self.whole else self.samples * self._outputs

    def gauss_newton_gradients(self) -> Iterator[tuple[float, dict[str, torch.Tensor]]]:
        """J_iᵀ s_ic by parameter, one sample and column after another, each with the weight of its
        square in G."""
        if self.whole:
            raise FlattestError("A sample's outputs depend on the rest of its batch.")
        squares = replace(self._gauss_newton(self.loss.factor), layers=frozenset())
        names, mass = {p: name for name, p in self.parameters.items()}, self.mass
        for batch in self.chunks():
            with exactly(self.dtype):
                for sign, gradients in squares.gradients(batch.x, batch.y):
                    yield float(sign) / mass, {names[p]: g for p, g in gradients}

    def outputs(self, factors=None):
        return self.outputs_of(self.module if factors is None else scaled(self.module, factors))

    @torch.no_grad()
    def outputs_of(self, module: nn.Module) -> np.ndarray:
        """f on all the data of a module of the same kind."""
        return np.concatenate([self.ran(b.x, module).cpu().numpy() for b in self.chunks()])

    @torch.no_grad()
    def output_changes(self, factors):
        """Chunk by chunk."""
        modules = [scaled(self.module, by) for by in factors]
        most = np.zeros(len(modules))
        for batch in self.chunks():
            f = self.ran(batch.x)
            changes = [float((self.ran(batch.x, m) - f).abs().max()) for m in modules]
            most = np.maximum(most, changes)
        return most

    def rescaled(self, factors):
        return scaled(self.given, factors)


def _of_both(one: Structure, other: Structure) -> Structure:
    """That of samples of two shapes: units as the first shows them, which are tried on all data."""
    found = replace(one, entries=max(one.entries, other.entries))
    if one.exact and not other.exact:
        found = replace(found, exact=False, reason=other.reason)
    return found if not isinstance(other.units, str) else replace(found, units=other.units)


def _added(one: Sums, other: Sums) -> Sums:
    return one | {p: one[p] + value if p in one else value for p, value in other.items()}


def _with_channels_last(t: torch.Tensor) -> torch.Tensor:
    return t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t
