"""Base optimizers, what a step makes of the gradient, and schedules of the learning rate.

A step is θ ← θ − η_t v. Here u is the gradient that the phase's ascent and clipping left, λ its
weight decay, and an optimizer's memory is a dict of arrays, in the run's precision, that is kept
with the parameters and begins anew with each phase. Without an optimizer v = u + λθ.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from flattest.errors import FlattestError
from flattest.machine import later
from flattest.problem.fingerprint import recall, remember

jax, jnp = later("jax"), later("jax.numpy")
Tree = dict[str, Any]  # arrays by name


class _Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers of which each must lie in an interval."""

    intervals: ClassVar[dict[str, tuple[float, float]]]

    def __post_init__(self):
        for name, (low, high) in self.intervals.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and low <= value < high):
                what = f"{type(self).__name__}'s {name}"
                raise FlattestError(f"{what} must lie in [{low:g}, {high:g}), not {value!r}.")


class Momentum(_Spec, frozen=True, tag="momentum"):
    """b ← βb + u + λθ and v = b, or v = u + λθ + βb for Nesterov's, as in PyTorch and optax."""

    beta: float = 0.9
    nesterov: bool = False
    intervals: ClassVar = {"beta": (0, 1)}

    def begin(self, params: Tree) -> Tree:
        return jax.tree.map(jnp.zeros_like, params)

    def direction(self, u: Tree, memory: Tree, params: Tree, decay) -> tuple[Tree, Tree]:
        u = decayed(u, params, decay)
        b = jax.tree.map(lambda b, u: self.beta * b + u, memory, u)
        return (jax.tree.map(lambda b, u: u + self.beta * b, b, u) if self.nesterov else b), b


class Adam(_Spec, frozen=True, tag="adam"):
    """m ← β₁m + (1 − β₁)u, s ← β₂s + (1 − β₂)u² and v = m̂/(√ŝ + ε), with m̂ = m/(1 − β₁^t) and
    ŝ = s/(1 − β₂^t) at the t-th step (Kingma and Ba 2015); the weight decay λθ is part of u."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    intervals: ClassVar = {"beta1": (0, 1), "beta2": (0, 1), "epsilon": (0, float("inf"))}

    def begin(self, params: Tree) -> Tree:
        moments = {
            f"{moment}/{name}": jnp.zeros_like(p) for moment in "ms" for name, p in params.items()
        }
        return moments | {"t": jnp.zeros((), next(iter(params.values())).dtype)}

    def direction(self, u: Tree, memory: Tree, params: Tree, decay) -> tuple[Tree, Tree]:
        return self._of_moments(decayed(u, params, decay), memory)

    def _of_moments(self, u: Tree, memory: Tree) -> tuple[Tree, Tree]:
        t = memory["t"] + 1
        after: Tree = {"t": t}
        v: Tree = {}
        for name, own in u.items():
            m = self.beta1 * memory[f"m/{name}"] + (1 - self.beta1) * own
            s = self.beta2 * memory[f"s/{name}"] + (1 - self.beta2) * own**2
            root = jnp.sqrt(s / (1 - self.beta2**t))
            v[name] = m / (1 - self.beta1**t) / (root + self.epsilon)
            after |= {f"m/{name}": m, f"s/{name}": s}
        return v, after


class AdamW(Adam, frozen=True, tag="adamw"):
    """Adam's v of the gradient alone, plus λθ (Loshchilov and Hutter 2019)."""

    def direction(self, u: Tree, memory: Tree, params: Tree, decay) -> tuple[Tree, Tree]:
        v, memory = self._of_moments(u, memory)
        return decayed(v, params, decay), memory


def decayed(u: Tree, params: Tree, decay) -> Tree:
    """u + λθ; u itself where there is no weight decay (None)."""
    if decay is None:
        return u
    return {name: own + decay * params[name] for name, own in u.items()}


class Optax(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="optax"):
    """A user's optax transformation of u + λθ, known by its fingerprint: η_t v is its update with
    the other sign, so that η is 1 unless it is to scale the updates.

    A spec that was read from a file finds the transformation where this process has made it.
    """

    source: str

    @classmethod
    def of(cls, transformation: Any) -> "Optax":
        if not (hasattr(transformation, "init") and hasattr(transformation, "update")):
            raise FlattestError(
                f"An optax transformation has init and update, as optax.adam(1e-3) has; not "
                f"{transformation!r}."
            )
        return cls(remember(transformation))

    @property
    def transformation(self) -> Any:
        return recall(self.source, "optax transformation")

    def begin(self, params: Tree) -> Tree:
        leaves = jax.tree.leaves(self.transformation.init(params))
        return {f"{i}": jnp.asarray(leaf) for i, leaf in enumerate(leaves)}

    def direction(self, u: Tree, memory: Tree, params: Tree, decay) -> tuple[Tree, Tree]:
        shape = jax.tree.structure(jax.eval_shape(self.transformation.init, params))
        state = jax.tree.unflatten(shape, [memory[f"{i}"] for i in range(len(memory))])
        updates, state = self.transformation.update(decayed(u, params, decay), state, params)
        leaves = jax.tree.leaves(state)
        return (
            {name: -update for name, update in updates.items()},
            {f"{i}": leaf.astype(memory[f"{i}"].dtype) for i, leaf in enumerate(leaves)},
        )


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="step"):
    """A user's own step, a JAX function (params, (x, y), key) → params, known by its fingerprint.

    x (b, d) and y (b,) are the batch, the key is that of the step. A spec that was read from a file
    finds the function where this process has made it.
    """

    source: str

    @classmethod
    def of(cls, function: Callable[[Tree, tuple[Any, Any], Any], Tree]) -> "Step":
        if not callable(function):
            raise FlattestError(f"A step is a function (params, batch, key), not {function!r}.")
        return cls(remember(function))

    @property
    def function(self) -> Callable[[Tree, tuple[Any, Any], Any], Tree]:
        return recall(self.source, "step function")

    def begin(self, params: Tree) -> Tree:
        return {}


class TorchOptimizer(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="torch_optimizer"
):
    """A user's torch.optim.Optimizer of u, as the function that makes it of parameters, known by
    its fingerprint; its own learning rates are multiplied by η_t, which is 1 unless a schedule says
    otherwise. PyTorch modules are trained by it.

    A spec that was read from a file finds the function where this process has made it.
    """

    source: str

    @classmethod
    def of(cls, make: Callable[[Any], Any]) -> "TorchOptimizer":
        if not callable(make) or (hasattr(make, "step") and not isinstance(make, type)):
            raise FlattestError(
                "A function that makes the optimizer is asked for, as "
                f"lambda params: torch.optim.SGD(params, lr=0.1), not {make!r}."
            )
        return cls(remember(make))

    @property
    def make(self) -> Callable[[Any], Any]:
        return recall(self.source, "torch optimizer")

    def begin(self, params: Tree) -> Tree:
        return {}


class Cosine(_Spec, frozen=True, tag="cosine"):
    """η falls to `final` · η along half a cosine: ×(final + (1 − final)(1 + cos πt/T)/2) at step t
    of the phase's T."""

    final: float = 0.0
    intervals: ClassVar = {"final": (0, 1)}

    def factor(self, t, steps: int, total):
        return self.final + (1 - self.final) * (1 + jnp.cos(jnp.pi * t / total)) / 2


class Steps(_Spec, frozen=True, tag="steps"):
    """η is multiplied by `by` after each of these `epochs` of the phase."""

    epochs: tuple[int, ...]
    by: float = 0.1
    intervals: ClassVar = {"by": (0, float("inf"))}

    def __post_init__(self):
        super().__post_init__()
        if not self.epochs or sorted(set(self.epochs)) != list(self.epochs) or self.epochs[0] < 1:
            raise FlattestError(
                f"A schedule's epochs are counts from 1 on, in increasing order, not {self.epochs}."
            )

    def factor(self, t, steps: int, total):
        passed = sum((t // steps >= epoch).astype(int) for epoch in self.epochs)
        return self.by**passed


Optimizer = Momentum | Adam | AdamW | Optax | Step | TorchOptimizer
Decay = Cosine | Steps
