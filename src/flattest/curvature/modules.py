"""∇²L of a PyTorch module on its data: what is given is checked, and the operator of a float64 copy
made; the user's module stays untouched."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from flattest.curvature.inputs import attempt, check_outputs, check_used
from flattest.curvature.module_batches import Batch, Forward, called, finite
from flattest.curvature.module_copies import by_batch, check_module, measurable_copy
from flattest.curvature.module_loaders import batches_of
from flattest.curvature.module_losses import SampleLoss, check_derivatives, sample_loss
from flattest.curvature.module_operators import ModuleOperator
from flattest.curvature.module_randomness import Randomness
from flattest.curvature.module_runs import exactly
from flattest.curvature.module_second import check_first_derivatives
from flattest.errors import FlattestError, require_known

DTYPES = {"float64": torch.float64, "float32": torch.float32}
# Outputs of all samples that are held at once to look at a user's own loss.
_MOST_CHECKED = 2**24
# Outputs at which the derivatives of a user's own loss are looked at together.
_MOST_DIFFERENTIATED = 2**20
# Runs of a module that draws random numbers, which may be without effect.
_RUNS_AT_RANDOM = 32


def module_operator(
    module: nn.Module,
    data: Any,
    loss: Any,
    forward: Forward | None = None,
    dtype: str = "float64",
) -> ModuleOperator:
    """Checks all that is given; raises a sentence where it cannot be measured.

    `forward(module, x)` returns the outputs for a batch of inputs; without it the module is called.
    """
    found = made_operator(module, data, loss, forward, dtype)
    with exactly(found.dtype):
        _check_forward(found)
    _check_together(found)
    _check_all_losses(found)
    return found


def made_operator(
    module: nn.Module,
    data: Any,
    loss: Any,
    forward: Forward | None = None,
    dtype: str = "float64",
) -> ModuleOperator:
    """The same, with the weights checked, but not what is the code's: for a module that was checked
    on these data at other weights."""
    module = getattr(module, "_orig_mod", module)  # Of one that torch.compile made.
    check_module(module)
    digits = DTYPES[require_known("dtype", dtype, DTYPES)]
    work = measurable_copy(module, digits)
    return ModuleOperator(
        module,
        work,
        batches_of(data),
        sample_loss(loss, digits),
        forward or called,
        by_batch(work),
        dtype=digits,
    )


def _check_forward(found: ModuleOperator) -> None:
    """On three samples: deterministic, sample by sample, finite, all weights used, derivatives that
    are those of the outputs."""
    few = found.batches.first if found.whole else found.batches.first.rows(0, 3)
    few = found._on_device(few)
    given = few.copy()
    versions = {name: p._version for name, p in found.parameters.items()}
    random = Randomness.now()
    with _Reads() as reads:
        f = _attempted(found, given.x)
    _check_copied(found.given, reads)
    if changed := [name for name, p in found.parameters.items() if p._version != versions[name]]:
        raise FlattestError(
            f"The module changes its parameters as it runs ({', '.join(changed)}), as a max_norm "
            "of an embedding does; L is then not a function of them."
        )
    if not all(map(torch.equal, *(tree_leaves(b.x) for b in (given, few)))):
        raise FlattestError("The module changes its inputs in place; let it work on a copy.")
    _check_deterministic(found, few, f, random.drawn())
    parts = [] if found.whole else list(zip(f.split(1), few.split(1), strict=True))
    same = all(_gives(found, row, one.copy()) for row, one in parts)
    check_outputs("module", finite(f), same)
    _check_used(found, _check_loss(found.loss, f, few.y))
    check_first_derivatives(found.module, found.parameters, lambda: found.run(few.copy().x), f)


class _Reads(TorchDispatchMode):
    """Which memory a run reads."""

    def __init__(self):
        super().__init__()
        self.memory: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = (t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor))
        held = (t for t in given if t.layout == torch.strided and t.numel())
        self.memory.update(t.untyped_storage().data_ptr() for t in held)
        return func(*args, **(kwargs or {}))


def _check_copied(module: nn.Module, reads: _Reads) -> None:
    """The copy uses no parameter of the module that it was copied from."""
    for name, p in module.named_parameters():
        if p.numel() and p.untyped_storage().data_ptr() in reads.memory:
            raise FlattestError(
                f"The module keeps a function that reaches its parameter {name} past the module (a "
                "lambda made with self, say), so that a copy goes on using the module's own "
                "weights; make that function a method."
            )


def _draws(found: ModuleOperator, few: Batch) -> bool:
    """Whether it is the module that draws: from one state of the random numbers it then comes to
    the same other one each time. They are everybody's, and another thread that draws meanwhile
    does so at its own pace."""
    start = Randomness.now()

    def end() -> Randomness:
        start.restore()
        _attempted(found, few.copy().x)
        return Randomness.now()

    first, *rest = (end() for _ in range(3))
    again = map(all, zip(*(first.same(other) for other in rest), strict=True))
    return any(same and not stayed for same, stayed in zip(again, start.same(first), strict=True))


def _check_deterministic(found: ModuleOperator, few: Batch, f: torch.Tensor, drawn: bool) -> None:
    """A few runs tell where no random numbers were `drawn`; others may have an effect now and then
    only (layers that are seldom dropped)."""
    training = any(layer.training for layer in found.module.modules())
    if drawn and training and _draws(found, few):
        raise FlattestError(
            "The module draws random numbers in training mode, so that it gives other outputs each "
            "time for the same inputs; call module.eval() first."
        )
    for _ in range(_RUNS_AT_RANDOM if drawn else 1):
        again = _attempted(found, few.copy().x)
        if finite(f) and not torch.allclose(f, again, *found.alike(1e-10, 1e-12)):
            raise FlattestError(
                "The module gives other outputs each time for the same inputs; make it "
                "deterministic."
            )


def _gives(found: ModuleOperator, row: torch.Tensor, one: Batch) -> bool:
    """Whether a sample alone has the outputs that it has among others."""
    alone = _attempted(found, one.x)
    return alone.shape == row.shape and torch.allclose(row, alone, *found.alike(1e-8, 1e-10))


@torch.no_grad()
def _check_together(found: ModuleOperator) -> None:
    """As many samples at once as are ever run have the outputs that every other one of them has
    without the rest."""
    if found.whole:
        return
    batch = found.first_chunk()
    f = found.ran(batch.x)
    for start in range(min(2, len(batch) - 1)):
        part = found.ran(tree_map(lambda t, start=start: t[start::2], batch.x))
        if not torch.allclose(f[start::2], part, *found.alike(1e-8, 1e-10)):
            check_outputs("module", finite=True, alone=False)


def _attempted(found: ModuleOperator, x: Any) -> torch.Tensor:
    types = {t.dtype for t in tree_leaves(x) if not t.is_floating_point()}
    failure = "The module fails on these inputs"
    if types and isinstance(x, torch.Tensor):
        failure = f"The inputs are of type {types.pop()}; give them as floating point"
    return attempt(failure, found.run, x)


def _check_loss(loss: SampleLoss, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The sum of a few samples' losses, each a finite number."""
    shapes = f"outputs {tuple(f.shape)} and targets {tuple(y.shape)}"
    value = attempt(f"The loss fails on {shapes}", loss.total, f, y)
    if not isinstance(value, torch.Tensor) or value.dim() != 0:
        raise FlattestError(
            "The loss of a batch must be one number (reduction='mean', or your own mean over it)."
        )
    if not math.isfinite(value.item()):
        raise FlattestError("The loss is not a finite number on every sample.")
    if loss.total(f.detach(), y).requires_grad:
        raise FlattestError(
            "The loss depends on parameters also without the outputs (a penalty on weights, or "
            "weights of its own), which ∇²L of a module would not see; leave that part out."
        )
    return value


def _check_all_losses(found: ModuleOperator) -> None:
    """A user's own loss of all the data is to be the mean of its samples' losses. Where all outputs
    are too many to hold, samples spread over the data stand for them."""
    if found.loss.known or found.whole:
        return
    with torch.no_grad():
        first = found.ran(found._on_device(found.batches.first.rows(0, 1)).x)
        every = -(-found.samples * first.numel() // _MOST_CHECKED)
        parts = [(found.ran(part.x), part.y) for part in _every(found, every)]
    with torch.no_grad(), exactly(found.dtype):
        f, y = (torch.cat(column) for column in zip(*parts, strict=True))
        total = found.loss.total
        shapes = f"outputs {tuple(f.shape)} and targets {tuple(y.shape)}"
        failure = f"The loss fails on {shapes}"
        together = attempt(failure, lambda: float(total(f, y)))
        rows = zip(f.split(1), y.split(1), strict=True)
        alone = attempt(failure, lambda: math.fsum(float(total(*row)) for row in rows))
    if not math.isfinite(alone):
        raise FlattestError("The loss is not a finite number on every sample.")
    few = slice(None, None, -(-f.numel() // _MOST_DIFFERENTIATED))
    with exactly():
        check_derivatives(
            total, *(t.double() if t.is_floating_point() else t for t in (f[few], y[few]))
        )
    if not math.isclose(together, alone, rel_tol=1e-8, abs_tol=1e-12 * len(f)):
        raise FlattestError(
            "The loss of a batch must be the mean of its samples' losses (reduction='mean', "
            "outputs and targets of one shape; PyTorch's losses may have class weights and ignored "
            "labels)."
        )


def _every(found: ModuleOperator, every: int) -> Iterator[Batch]:
    """Every so manieth sample, chunk by chunk."""
    for batch in found.chunks():
        yield batch if every == 1 else Batch(*tree_map(lambda t: t[::every], (batch.x, batch.y)))


def _check_used(found: ModuleOperator, value: torch.Tensor) -> None:
    """Every parameter is used by a few samples, of whose losses the sum is given, or by others."""
    if not value.requires_grad:
        raise FlattestError("The loss does not depend on the module's parameters.")
    unused = _without_gradient(value, found.parameters)
    chunks = found.chunks() if unused else ()
    for batch in chunks:
        total = found.loss.total(found.run(batch.x), batch.y)
        unused = _without_gradient(total, unused)
        if not unused:
            break
    check_used([*unused], "delete unused parameters or freeze them with requires_grad_(False)")


def _without_gradient(
    value: torch.Tensor, parameters: dict[str, nn.Parameter]
) -> dict[str, nn.Parameter]:
    gradient = partial(torch.autograd.grad, allow_unused=True, retain_graph=True)
    failure = "The module cannot be differentiated"
    found = attempt(failure, gradient, value, [*parameters.values()])
    return {name: p for (name, p), g in zip(parameters.items(), found, strict=True) if g is None}
