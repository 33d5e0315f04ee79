"""Watching a PyTorch module in training: a loop of one's own, Lightning, Hugging Face's Trainer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from flattest.curvature.inputs import attempt
from flattest.curvature.module_batches import Batch, Forward
from flattest.curvature.module_copies import twin
from flattest.curvature.module_loaders import batches_of
from flattest.curvature.module_operators import ModuleOperator
from flattest.curvature.modules import made_operator, module_operator
from flattest.curvature.operator import Operator
from flattest.flatness.rungs import Row
from flattest.flatness.watch import Watch, evenly


class ModuleWatch(Watch):
    """`flattest.Watch` of a module: `watch.step()` after every `optimizer.step()`.

    The module is measured as it is in eval mode, on a float64 copy; parameters, buffers, modes,
    gradients and the state of random numbers stay as they are. `optimizer` gives the step size.
    """

    least_guess = 0.1

    def __init__(
        self,
        module: nn.Module,
        data: Any,
        loss: Any = "mse",
        *,
        optimizer: torch.optim.Optimizer | None = None,
        forward: Forward | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(None, data, loss, **settings)
        self._module, self._optimizer, self._forward = module, optimizer, forward
        self._checked: set[int] = set()
        self._differentiated: set[int] = set()
        self._start = 0, self._kept(module), self._rate()
        self.spent = self._clock() - self._began

    def step(self, params: Any = None, lr: float | None = None) -> Row | None:
        """Say that one more update was made; the row, if there was time to measure."""
        return super().step(self._module, self._rate() if lr is None else lr)

    def close(self, params: Any = None, *, final: bool = False) -> str:
        self.lr = self._rate()
        return super().close(self._module, final=final)

    def _rate(self) -> float | None:
        if self._optimizer is None:
            return self.lr
        return float(self._optimizer.param_groups[0]["lr"])

    @contextmanager
    def _measuring(self, params: nn.Module) -> Iterator[None]:
        with evaluating(params), torch.random.fork_rng(devices=[]):
            yield

    def _operator(self, params: nn.Module, data: Any) -> ModuleOperator:
        """What is checked of the module's code is so once for these data, not at every row."""
        known = id(data) in self._checked
        made = (made_operator if known else module_operator)(
            params, data, self._loss, self._forward
        )
        made.compared = id(data) in self._differentiated
        self._checked.add(id(data))
        return made

    def _was_measured(self, op: Operator, data: Any) -> None:
        if isinstance(op, ModuleOperator) and op.compared:
            self._differentiated.add(id(data))

    def _check_code(self, params: nn.Module) -> None:
        """Of the module as it is at the end, also where no row is left to be taken of it."""
        data, second = self._data[self.samples], bool(self._differentiated)
        self._checked.clear()
        self._differentiated.clear()
        with self._measuring(params):
            op = self._operator(params, data)
            if second:
                op.matvec(np.zeros(op.size))  # Second derivatives are checked before a product.
            self._was_measured(op, data)

    def _kept(self, params: nn.Module) -> nn.Module:
        return attempt("The module cannot be copied", twin, params)

    def _spread(self, data: Any, count: int) -> Any:
        """Batch by batch, so that of a loader's data no more than the samples are kept."""
        batches = batches_of(data)
        chosen = batches.picked(np.array(evenly(batches.samples, count)))
        return [_as_given(batch) for batch in chosen]

    def _count(self, data: Any) -> int:
        return batches_of(data).samples


def _as_given(batch: Batch) -> Any:
    return {**batch.x, "labels": batch.y} if isinstance(batch.x, dict) else (batch.x, batch.y)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Inside, the module is in eval mode; after, every layer is in the mode that it was in."""
    modes = [(layer, layer.training) for layer in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for layer, mode in modes:
            layer.training = mode


def lightning_callback(
    data: Any,
    loss: Any,
    *,
    module: Callable[[Any], nn.Module] = lambda model: model,
    **settings: Any,
) -> Any:
    """A callback for Lightning's Trainer that watches `module(pl_module)`, the LightningModule
    itself unless a part of it is named; `settings` are those of `Watch`. `callback.watch` has the
    rows, `callback.sentence` what came out."""
    from lightning.pytorch.callbacks import Callback

    class FlattestCallback(Callback):
        watch: ModuleWatch
        sentence: str = ""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            with _without_trainer(pl_module):
                optimizer = trainer.optimizers[0] if trainer.optimizers else None
                self.watch = ModuleWatch(
                    module(pl_module), data, loss, optimizer=optimizer, **settings
                )

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            with _without_trainer(pl_module):
                self.watch.step()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            with _without_trainer(pl_module):
                self.sentence = self.watch.close()

    return FlattestCallback()


@contextmanager
def _without_trainer(pl_module: Any) -> Iterator[None]:
    """A LightningModule knows its trainer, which must not be copied with it."""
    trainer = vars(pl_module).get("_trainer")
    pl_module._trainer = None
    try:
        yield
    finally:
        pl_module._trainer = trainer


def trainer_callback(data: Any, loss: Any, **settings: Any) -> Any:
    """A callback for Hugging Face's Trainer; `settings` are those of `Watch`, `callback.watch` has
    the rows, `callback.sentence` what came out."""
    from transformers import TrainerCallback

    class FlattestCallback(TrainerCallback):
        watch: ModuleWatch
        sentence: str = ""

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            optimizer = getattr(given.get("optimizer"), "optimizer", given.get("optimizer"))
            self.watch = ModuleWatch(given["model"], data, loss, optimizer=optimizer, **settings)

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.watch.step()

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.sentence = self.watch.close()

    return FlattestCallback()
