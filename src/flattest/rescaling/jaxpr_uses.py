"""Which entries of what goes into an equation of a jaxpr are used, where some of its result are."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from flattest.rescaling.jaxpr_values import Hidden, Known, Steps, Weight
from flattest.rescaling.units import PERHAPS, UNUSED, USED

SHAPES = "reshape transpose broadcast_in_dim squeeze expand_dims slice rev copy copy_p"
SMOOTH = (
    "tanh logistic exp exp2 expm1 log log1p sin cos tan erf erfc sqrt rsqrt cbrt square "
    "integer_pow pow sinh cosh atan asinh"
)
_BY_ENTRY = frozenset(
    f"{SMOOTH} neg abs sign add sub add_any max min gt ge lt le eq ne select_n mul div "
    "convert_element_type name optimization_barrier".split()
)
_LINEAR = frozenset(
    f"{SHAPES} concatenate reduce_sum dot_general conv_general_dilated reduce_window_sum".split()
)
_WINDOWED = frozenset({"reduce_window_max", "reduce_window_min"})
_REDUCTIONS = frozenset({"reduce_max", "reduce_min", "argmax", "argmin"})


@dataclass(frozen=True)
class Step:
    """An equation, what went in and what it gave, and the ties it made, from `start` to `stop`."""

    equation: Any
    inputs: list
    found: Steps | Weight | Hidden
    start: int
    stop: int


def shape_of(value: Any) -> tuple[int, ...]:
    if isinstance(value, Steps):
        return tuple(value.shape)
    return np.shape(value.index if isinstance(value, Weight) else value.units)


def used_inputs(step: Step, used: np.ndarray) -> list[Any]:
    """How the entries of what goes into a step are used, of whose result entries are `used` so:
    exactly where it works entry by entry, is linear or takes all along axes; else all of them are
    perhaps."""
    name = step.equation.primitive.name
    if name in _BY_ENTRY:
        return _by_entry(step, used)
    if name in _LINEAR and _as_floats(step.equation):
        return _linear(step, step.equation.primitive, used)
    if name in _WINDOWED:
        return _linear(step, lax.reduce_window_sum_p, used)
    if name in _REDUCTIONS:
        return [np.expand_dims(used, step.equation.params["axes"])]
    return [USED if (used == USED).all() else PERHAPS] * len(step.inputs)


def _as_floats(equation) -> bool:
    """Whether it takes numbers, or only moves what it takes, whatever that is."""
    kinds = [variable.aval.dtype for variable in equation.invars]
    moves = equation.primitive.name in (*SHAPES.split(), "concatenate")
    return moves or all(jnp.issubdtype(kind, jnp.floating) for kind in kinds)


def _by_entry(step: Step, used: np.ndarray) -> list[Any]:
    name, found = step.equation.primitive.name, []
    shapes = [variable.aval.shape for variable in step.equation.invars]
    for at, shape in enumerate(shapes):
        part = used
        for other, value in enumerate(step.inputs):
            if other != at and isinstance(value, Known) and not value.varies:
                part = np.where(_lets(name, at, other, np.asarray(value.value)), part, UNUSED)
        spread = tuple(a for a, n in enumerate(shape) if n == 1) if shape else None
        found.append(part.max(axis=spread, keepdims=bool(shape)))
    return found


def _lets(name: str, at: int, other: int, constant: np.ndarray) -> np.ndarray:
    """Where a constant operand, the one in the place `other`, lets the one `at` its place through.
    What is chosen by a constant, times 0 or added to an infinity is cut off."""
    if name == "select_n" and other == 0:
        return constant.astype(int) == at - 1
    if name == "mul":
        return constant != 0
    if name in ("add", "sub", "add_any"):
        return np.isfinite(constant)
    return np.full((), True)


def _linear(step: Step, primitive, used: np.ndarray) -> list[Any]:
    """Where it is linear in an operand, its transpose takes what is used there: applied to numbers
    that are not negative."""
    ones = [
        _stands_in(value, variable.aval)
        for value, variable in zip(step.inputs, step.equation.invars, strict=True)
    ]
    result, back = jax.vjp(lambda *v: primitive.bind(*v, **step.equation.params), *ones)
    perhaps, surely = (
        [np.asarray(part) != 0 for part in back(jnp.asarray(used >= level, result.dtype))]
        for level in (PERHAPS, USED)
    )
    return [
        np.where(s, USED, np.where(p, PERHAPS, UNUSED))
        for p, s in zip(perhaps, surely, strict=True)
    ]


def _stands_in(value: Any, aval) -> Any:
    """1, and 0 where a constant is."""
    kind = aval.dtype if jnp.issubdtype(aval.dtype, jnp.floating) else jnp.float32
    if isinstance(value, Known) and not value.varies:
        return jnp.asarray(np.asarray(value.value) != 0, kind)
    return jnp.ones(aval.shape, kind)
