"""Activations σ with their first two derivatives, by name."""

import hashlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flattest.errors import FlattestError
from flattest.machine import later

Elementwise = Callable[[Any], Any]
jax, jnp = later("jax"), later("jax.numpy")
_SPECIAL = {"numpy": later("scipy.special"), "jax.numpy": later("jax.scipy.special")}


@dataclass(frozen=True)
class Activation:
    """σ, σ′ and σ″, elementwise on NumPy and JAX arrays alike, and what is known of σ.

    `homogeneity` is c where σ(bt) = b^c σ(t) for all b > 0, None where there is no such c.
    `slopes` are σ′ below and above 0 where σ is linear on either side, else None.
    `nonnegative`: σ ≥ 0. `power`: σ(t) is |t|^c or 0, with c > 1. `steep`: σ′ ≥ σ/(1 + σ), σ > 0.
    `expansion`: σ as a combination of the activations linear, relu and quadratic, () where it is
    not one.
    `kernel` names the fused engine's kernel for σ, with its parameter; None where it has none.
    `fingerprint` is a hash of a registered activation, "" for a built-in one.
    """

    name: str
    value: Elementwise
    slope: Elementwise
    curvature: Elementwise
    homogeneity: float | None = None
    slopes: tuple[float, float] | None = None
    nonnegative: bool = False
    power: bool = False
    steep: bool = False
    expansion: tuple[tuple[str, float], ...] = ()
    kernel: tuple[str, float] | None = None
    fingerprint: str = ""

    @property
    def piecewise_linear(self) -> bool:
        return self.slopes is not None

    @property
    def is_relu(self) -> bool:
        """Whether σ(t) = max(t, 0), under whatever name."""
        return self.slopes == (0.0, 1.0)


def sigmoid(t):
    """1/(1 + e^{−t}) with all its digits, however small it is."""
    return _SPECIAL[_namespace(t).__name__].expit(t)


def _namespace(t):
    return t.__array_namespace__()


def _normal(t):
    """Φ(t) and φ(t) of the standard normal law; erfc keeps the digits of Φ for t ≪ 0."""
    xp = _namespace(t)
    density = math.sqrt(0.5 / math.pi) * xp.exp(-0.5 * t * t)
    return 0.5 * _SPECIAL[xp.__name__].erfc(-math.sqrt(0.5) * t), density


def _gelu_slope(t):
    below, density = _normal(t)
    return below + t * density


def _silu_slope(t):
    return sigmoid(t) * (1 + t * sigmoid(-t))


def _silu_curvature(t):
    return sigmoid(t) * sigmoid(-t) * (2 - t * _namespace(t).tanh(0.5 * t))


def _tanh_slope(t):
    return 4 * sigmoid(2 * t) * sigmoid(-2 * t)  # 1 − tanh² loses its digits for |t| ≫ 0


def _leaky(name: str, slope: float) -> Activation:
    def gain(t):
        # Arithmetic on the mask: `where` on random signs is four times slower in NumPy.
        positive = (t > 0).astype(t.dtype)
        return positive if slope == 0 else positive + slope * (1 - positive)

    return Activation(
        name,
        lambda t: t * gain(t),
        gain,
        lambda t: t * 0,
        homogeneity=1.0,
        slopes=(slope, 1.0),
        nonnegative=slope <= 0,
        expansion=tuple(part for part in (("linear", slope), ("relu", 1.0 - slope)) if part[1]),
        kernel=("leaky", slope),
    )


def _relu_power(name: str, c: float) -> Activation:
    if c <= 1:
        raise FlattestError(f"The power in {name!r} must exceed 1; use 'relu' for power 1.")

    def power(t, exponent):
        # The inner `where` keeps 0^negative out of both branches, for autodiff's sake.
        xp = _namespace(t)
        return xp.where(t > 0, xp.where(t > 0, t, t * 0 + 1) ** exponent, t * 0)

    return Activation(
        name,
        lambda t: power(t, c),
        lambda t: c * power(t, c - 1),
        lambda t: c * (c - 1) * power(t, c - 2),
        homogeneity=c,
        nonnegative=True,
        power=True,
        kernel=("power", c),
    )


def _softplus(name: str, width: float) -> Activation:
    if width <= 0:
        raise FlattestError(f"The width in {name!r} must be positive; use 'relu' for width 0.")
    return Activation(
        name,
        lambda t: width * _namespace(t).logaddexp(t / width, t * 0),
        lambda t: sigmoid(t / width),
        lambda t: sigmoid(t / width) * sigmoid(-t / width) / width,
        nonnegative=True,
    )


_FIXED: dict[str, Activation] = {
    "relu": _leaky("relu", 0.0),
    "linear": _leaky("linear", 1.0),
    "leaky_relu": _leaky("leaky_relu", 0.01),
    "softplus": Activation(
        "softplus",
        lambda t: _namespace(t).logaddexp(t, t * 0),
        sigmoid,
        lambda t: sigmoid(t) * sigmoid(-t),
        nonnegative=True,
        steep=True,
        kernel=("softplus", 0.0),
    ),
    "quadratic": Activation(
        "quadratic",
        lambda t: t * t,
        lambda t: 2 * t,
        lambda t: t * 0 + 2,
        homogeneity=2.0,
        nonnegative=True,
        power=True,
        expansion=(("quadratic", 1.0),),
        kernel=("quadratic", 0.0),
    ),
    "tanh": Activation(
        "tanh",
        lambda t: _namespace(t).tanh(t),
        _tanh_slope,
        lambda t: -2 * _namespace(t).tanh(t) * _tanh_slope(t),
        kernel=("tanh", 0.0),
    ),
    "silu": Activation(
        "silu",
        lambda t: t * sigmoid(t),
        _silu_slope,
        _silu_curvature,
        kernel=("silu", 0.0),
    ),
    "gelu": Activation(
        "gelu",
        lambda t: t * _normal(t)[0],
        _gelu_slope,
        lambda t: (2 - t * t) * _normal(t)[1],
        kernel=("gelu", 0.0),
    ),
}
_FAMILIES = {"leaky_relu:": _leaky, "relu^": _relu_power, "softplus:": _softplus}
_NAMES = [*_FIXED, "leaky_relu:SLOPE", "relu^C", "softplus:WIDTH"]


def activation(name: str) -> Activation:
    """The activation called `name`: relu, leaky_relu or leaky_relu:SLOPE, softplus or
    softplus:WIDTH (δ log(1 + e^{t/δ})), gelu (with the normal distribution function itself), silu,
    tanh, quadratic, relu^C (C > 1), linear, or one given to `register_activation`."""
    if isinstance(name, str) and (found := _find(name)) is not None:
        return found
    valid = ", ".join(sorted({*_NAMES, *_FIXED}))
    raise FlattestError(
        f"Unknown activation {name!r}; valid are: {valid}; `register_activation` adds your own."
    )


def _find(name: str) -> Activation | None:
    if name in _FIXED:
        return _FIXED[name]
    found = [prefix for prefix in _FAMILIES if name.startswith(prefix)]
    return _FAMILIES[found[0]](name, _parameter(name, name[len(found[0]) :])) if found else None


def register_activation(
    name: str, function: Elementwise, homogeneity: float | None = None
) -> Activation:
    """Makes a user's own σ, a function of JAX arrays, available by name; σ′ and σ″ by autodiff."""
    if name in _NAMES or name.startswith(tuple(_FAMILIES)):
        raise FlattestError(f"The activation {name!r} is built in; choose another name.")
    slope = _elementwise_derivative(function)
    own = Activation(
        name,
        lambda t: function(jnp.asarray(t)),
        slope,
        _elementwise_derivative(slope),
        homogeneity,
        fingerprint=_fingerprint(function, slope, homogeneity),
    )
    _FIXED[name] = own
    return own


def _elementwise_derivative(function: Elementwise) -> Elementwise:
    return lambda t: jax.jvp(function, (jnp.asarray(t),), (jnp.ones_like(t),))[1]


def _fingerprint(function: Elementwise, slope: Elementwise, homogeneity: float | None) -> str:
    """A hash of σ and σ′ on a grid, of its source and of c.

    The source alone does not show a constant that it reads from elsewhere, nor the grid what σ is
    off it. Digits that rounding on another machine may change do not count.
    """
    grid = np.concatenate([-np.geomspace(100, 1e-3, 64), [0.0], np.geomspace(1e-3, 100, 64)])
    values = np.concatenate([np.asarray(f(jnp.asarray(grid))) for f in (function, slope)])
    digits = [f"{0.0 if abs(v) < 1e-12 else v:.9e}" for v in values]
    text = "\n".join([_source(function), str(homogeneity), *digits])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _source(function: Elementwise) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        # No source to read (a built-in or a REPL function): its qualified name is what we know.
        return f"{function.__module__}.{getattr(function, '__qualname__', function)}"


def _parameter(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FlattestError(f"The parameter in activation {name!r} is not a number.")
    return value
