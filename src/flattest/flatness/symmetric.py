"""The least Gauss–Newton trace of a PyTorch module over all symmetries found in it: rescalings of
units, GL(h) of attention heads and of consecutive linear layers, jointly.

What a run proposes (`rescaling.module_symmetries`) counts only if the module agrees: at random
weights near its own, a random change of all bases must leave the outputs on all the data as they
are. Near its own and not at them: a bias that is 0 today must take part in the change too.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from flattest.curvature.module_copies import measurable_copy, twin
from flattest.curvature.module_operators import ModuleOperator
from flattest.curvature.module_runs import exactly
from flattest.curvature.sharpness import Function, operator_of
from flattest.errors import FlattestError
from flattest.problem.randomness import generator
from flattest.rescaling.alternation import Place, Point, Term, alternated
from flattest.rescaling.module_symmetries import bases_of
from flattest.rescaling.symmetries import Bases, Side, sides
from flattest.rescaling.units import ANOTHER_BRANCH

# A change of basis may move outputs by what changing every weight by this part of itself would.
_ALIKE = 1e-9
# Gradients that are taken together.
_STACKED = 64
# Numbers that the products of gradients between two vectors may take.
_MOST_ENTRIES = 2**24
# By more than this part of itself rounding the rescaled weights may not move f without a note.
_ROUNDED = 1e-4
# Below this part of all, what a loss curves down by is a rounding error.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Basis:
    """`size` components that GL(size) mixes, and the weights that stand at them."""

    size: int
    weights: tuple[str, ...]


@dataclass(frozen=True)
class LeastGaussNewton:
    """`trace` is Tr G of the module as it is and `value` its least over all symmetries found: the
    positive scales of `units` units, and GL of each of `vectors`. It is proven down to
    `lower_bound`; `rescaled`, which has the same outputs, has the trace `attained`, more than
    `value` where that is only approached. `constant` is what no symmetry changes."""

    trace: float
    value: float
    lower_bound: float
    attained: float
    constant: float
    units: int
    vectors: tuple[Basis, ...]
    notes: tuple[str, ...]
    rescaled: nn.Module

    def described(self) -> str:
        """Over what it is the least."""
        sizes = Counter(basis.size for basis in self.vectors)
        bases = ", ".join(f"{count} of size {size}" for size, count in sorted(sizes.items()))
        return f"over {self.units} units and {len(self.vectors)} bases" + (
            f" ({bases})" if bases else ""
        )


def least_gauss_newton(
    model: Function, params: Any, data: Any, loss: Any = "mse"
) -> LeastGaussNewton:
    """The least Gauss–Newton trace over rescalings of units and over GL(h) of every attention head
    and of consecutive linear layers, jointly, with a proven lower bound: a backward pass for each
    sample and output.

    Rotary embeddings leave a complex number for each plane, grouped queries one matrix for the
    group, QK-norms a scale for each entry: whatever the module itself shows. What goes into a
    LayerNorm, whose scale is free but for its ε, is held at the scale it has (the gauge)."""
    op = operator_of(model, params, data, loss)
    if not isinstance(op, ModuleOperator):
        raise FlattestError("The symmetries of bases are those of PyTorch modules.")
    found = flattest_bases(op)
    if isinstance(found, str):
        raise FlattestError(f"The symmetries of this module are not known: {found}.")
    return found


@torch.no_grad()
def flattest_bases(op: ModuleOperator) -> LeastGaussNewton | str:
    """As `least_gauss_newton`, or the reason why it cannot be said."""
    if op.dtype != torch.float64:
        return "they are looked for in float64"
    if op.whole:
        return "a sample's outputs depend on the rest of its batch"
    with exactly():
        one = op._on_device(op.batches.first.rows(0, 1))
        proposed, lost, seen = bases_of(op.parameters, one.x, op.run)
    if isinstance(proposed, str):
        return proposed
    smaller, notes = _small(op, proposed)
    found, remarks = _agreed(op, smaller)
    if seen is not None and not op.always_sees(seen):
        notes.append(f"{ANOTHER_BRANCH}: that outputs are kept is known for these data alone")
    notes += remarks + ([f"symmetries may be missing: {lost}"] if lost else [])
    layout = Layout(found, _shapes(op))
    terms, shares = _terms(op, layout)
    if shares[-1] > _ROUNDING * shares[1]:
        return "the loss curves down somewhere, so that its Gauss–Newton part is not ≥ 0"
    best = alternated(terms, [len(v) for v in found.vectors], len(found.scalars))
    changes = Changes.to(best.point)
    if not _alike(op, op.module, layout, changes, 1e-6):
        return "the bases found change the outputs on these data"
    constant = sum(float(t.gram) for t in terms if t.left == t.right == Place())
    if best.attained > best.value * (1 + 1e-12):
        notes.append("the least is approached, not attained")
    rescaled = layout.changed(op.given, changes)
    notes += _rounded(op, rescaled)
    return LeastGaussNewton(
        shares[1] - shares[-1],
        best.value,
        best.lower_bound,
        best.attained,
        constant,
        len(found.scalars),
        tuple(layout.described()),
        tuple(notes),
        rescaled,
    )


@dataclass(frozen=True)
class Changes:
    """A of each vector, and β of each unit."""

    A: list[np.ndarray]
    beta: np.ndarray

    @classmethod
    def to(cls, point: Point) -> "Changes":
        """A = P^{1/2}."""
        roots = []
        for P in point.P:
            values, vectors = np.linalg.eigh(P)
            roots.append((vectors * np.sqrt(values)) @ vectors.T)
        return cls(roots, np.exp(point.t / 2))

    @classmethod
    def random(cls, found: Bases, rng: np.random.Generator) -> "Changes":
        sizes = [len(v) for v in found.vectors]
        A = [np.eye(h) + 0.3 * rng.normal(size=(h, h)) / np.sqrt(h) for h in sizes]
        return cls(A, np.exp(0.5 * rng.normal(size=len(found.scalars))))

    def matrix(self, place: Place, size: int) -> np.ndarray:
        """What the entries at a place, so many, are multiplied by."""
        if place.vector is not None:
            A = self.A[place.vector]
            return A if place.exponent < 0 else np.linalg.inv(A).T
        if place.units:
            return np.diag(self.beta[list(place.units)] ** -place.exponent)
        return np.eye(size)


@dataclass(frozen=True)
class Layout:
    """Where the bases stand in every weight."""

    bases: Bases
    shapes: dict[str, tuple[int, ...]]

    def pieces(self) -> Iterator[tuple[str, Side, Side]]:
        for name, shape in self.shapes.items():
            for target, source in sides(self.bases, name, shape):
                yield name, target, source

    def described(self) -> Iterator[Basis]:
        names: list[list[str]] = [[] for _ in self.bases.vectors]
        for name, *both in self.pieces():
            for v in sorted({p.vector for s in both for p, _ in s.places if p.vector is not None}):
                names[v].append(name)
        for vector, of in zip(self.bases.vectors, names, strict=True):
            yield Basis(len(vector), tuple(dict.fromkeys(of)))

    @torch.no_grad()
    def changed(self, module: nn.Module, changes: Changes) -> nn.Module:
        """A copy in other bases."""
        found = twin(module)
        parameters = dict(found.named_parameters())
        for name, target, source in self.pieces():
            p = parameters[name]
            value = p.detach().double().contiguous().clone()
            matrix = _as_matrix(value, target, source)
            p.copy_(_as_before(_multiplied(matrix, target, source, changes), value, target, source))
        for p in parameters.values():
            p.grad = None
        return found


def _multiplied(matrix: torch.Tensor, target: Side, source: Side, changes: Changes) -> torch.Tensor:
    """Place by place, from both sides."""
    found = matrix.clone()
    for one, rows in target.places:
        for other, columns in source.places:
            at = torch.as_tensor(rows)[:, None], torch.as_tensor(columns)
            left, right = (
                torch.as_tensor(changes.matrix(place, len(index)), device=matrix.device)
                for place, index in ((one, rows), (other, columns))
            )
            found[at] = torch.einsum("ab,bcx,dc->adx", left, matrix[at], right)
    return found


def _as_matrix(t: torch.Tensor, target: Side, source: Side) -> torch.Tensor:
    """Targets × sources × all else."""
    axes = (*target.axes, *source.axes)
    moved = t.movedim(axes, tuple(range(len(axes))))
    rows = math.prod(t.shape[a] for a in target.axes)
    columns = math.prod(t.shape[a] for a in source.axes)
    return moved.reshape(rows, columns, -1)


def _as_before(matrix: torch.Tensor, t: torch.Tensor, target: Side, source: Side) -> torch.Tensor:
    """A matrix in the shape of the weight that it was made from."""
    axes = (*target.axes, *source.axes)
    first = tuple(range(len(axes)))
    return matrix.reshape(t.movedim(axes, first).shape).movedim(first, axes)


def _rounded(op: ModuleOperator, rescaled: nn.Module) -> list[str]:
    """What is to be said where the module's own type has too few digits for its new weights."""
    f = op.outputs_of(op.module)
    moved = np.abs(op.outputs_of(measurable_copy(rescaled, op.dtype)) - f).max()
    if moved <= _ROUNDED * np.abs(f).max():
        return []
    kind = str(next(rescaled.parameters()).dtype).removeprefix("torch.")
    return [f"in {kind} the rescaled weights move the outputs by {moved:.1g}: give it in float64"]


def _small(op: ModuleOperator, proposed: Bases) -> tuple[Bases, list[str]]:
    """With vectors held whose products of gradients would take too much memory, or that a weight
    leads back to, for which there is no closed form."""
    held: set[int] = set()
    for _, target, source in Layout(proposed, _shapes(op)).pieces():
        for one, rows in target.places:
            for other, columns in source.places:
                sizes = _entries(one, rows), _entries(other, columns)
                back = one.vector is not None and one.vector == other.vector
                if not back and math.prod(sizes) <= _MOST_ENTRIES:
                    continue
                larger = max(((sizes[0], one), (sizes[1], other)), key=lambda pair: pair[0])[1]
                if larger.vector is not None:
                    held |= set(proposed.vectors[larger.vector])
    notes = ["bases that are too large, or feed themselves, are held as they are"] if held else []
    return proposed.without(sorted(held)), notes


def _shapes(op: ModuleOperator) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in op.shapes.items()}


def _entries(place: Place, rows: np.ndarray) -> int:
    return len(rows) ** 2 if place.vector is not None else len(rows) if place.units else 1


def _agreed(op: ModuleOperator, proposed: Bases) -> tuple[Bases, list[str]]:
    """The bases that the module leaves open, tried on it: all at once, or where that fails without
    those that fail alone."""
    shapes = _shapes(op)
    rng = generator(0, "symmetric/tried")
    near = _near(op, rng)

    def keeps(found: Bases) -> bool:
        changes = Changes.random(found, rng)
        return _alike(op, near, Layout(found, shapes), changes, _ALIKE)

    if keeps(proposed):
        return proposed, []
    each = [*proposed.vectors, *((c,) for c in proposed.scalars)]
    everything = {c for part in each for c in part}
    wrong = [part for part in each if not keeps(proposed.without(sorted(everything - set(part))))]
    held = sorted({c for part in wrong for c in part})
    found = proposed.without(held)
    if not keeps(found):
        return proposed.without(sorted(everything)), ["no change of basis keeps the outputs"]
    return found, [f"{len(wrong)} changes of basis that looked possible change the outputs: held"]


@torch.no_grad()
def _near(op: ModuleOperator, rng: np.random.Generator) -> nn.Module:
    """The module with every weight moved by a third of its size, those that are 0 too."""
    near = twin(op.module)
    named = dict(near.named_parameters())
    sizes = {name: float(named[name].abs().mean()) for name in op.parameters}
    least = min((s for s in sizes.values() if s > 0), default=1.0)
    for name in op.parameters:
        noise = torch.as_tensor(rng.normal(size=op.shapes[name]), device=op.device)
        named[name].add_(0.3 * (sizes[name] or least) * noise)
    return near


def _alike(
    op: ModuleOperator, module: nn.Module, layout: Layout, changes: Changes, part: float
) -> bool:
    """Whether the module in other bases has the same outputs on all the data."""
    rng = generator(0, "symmetric/alike")
    near = twin(module)
    with torch.no_grad():
        for p in near.parameters():
            p.mul_(1 + part * torch.as_tensor(rng.normal(size=tuple(p.shape)), device=p.device))
    f = op.outputs_of(module)
    moved = np.abs(op.outputs_of(layout.changed(module, changes)) - f).max()
    return bool(moved <= np.abs(op.outputs_of(near) - f).max())


def _terms(op: ModuleOperator, layout: Layout) -> tuple[list[Term], dict[int, float]]:
    """Σ G ⊗ G between all places of every weight, and the shares of Tr G by their sign."""
    pieces = list(layout.pieces())
    grams: dict[tuple[Place, Place], Any] = {}
    shares = {1: 0.0, -1: 0.0}
    for sign, stack in _stacked(op):
        shares[sign] += sum(float(g.square().sum()) for g in stack.values())
        for name, target, source in pieces if sign > 0 else ():
            _add(grams, stack[name], target, source)
    return [Term(*places, gram.cpu().numpy()) for places, gram in grams.items()], shares


def _stacked(op: ModuleOperator) -> Iterator[tuple[int, dict[str, torch.Tensor]]]:
    """Gradients as G has their squares, some at a time, along a last axis; by the sign of these."""
    held: dict[int, list[dict[str, torch.Tensor]]] = {1: [], -1: []}
    for weight, gradients in op.gauss_newton_gradients():
        sign = 1 if weight >= 0 else -1
        held[sign].append({name: abs(weight) ** 0.5 * g for name, g in gradients.items()})
        if len(held[sign]) == _STACKED:
            yield sign, _stack(held[sign])
            held[sign] = []
    for sign, rest in held.items():
        if rest:
            yield sign, _stack(rest)


def _stack(held: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([g[name] for g in held], -1) for name in held[0]}


def _add(grams: dict, G: torch.Tensor, target: Side, source: Side) -> None:
    matrix = _as_matrix(G, target, source)
    for left, rows in target.places:
        part = matrix[torch.as_tensor(rows)]
        for right, columns in source.places:
            g = part[:, torch.as_tensor(columns)]
            gram = torch.einsum(_formula(left, right), g, g)
            key = (left, right)
            grams[key] = grams[key] + gram if key in grams else gram


def _formula(left: Place, right: Place) -> str:
    a, kept = _letters(left, "ab")
    c, also = _letters(right, "cd")
    return f"{a[0]}{c[0]}x,{a[1]}{c[1]}x->{kept}{also}"


def _letters(place: Place, two: str) -> tuple[str, str]:
    if place.vector is not None:
        return two, two
    return two[0] * 2, two[0] if place.units else ""
