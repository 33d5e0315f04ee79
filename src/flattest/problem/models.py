"""Architectures: init and apply, frozen and hashable (wen2023, section 2)."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np

from flattest.errors import FlattestError, require_known, unknown
from flattest.machine import later, require_memory
from flattest.problem.activations import Activation, activation
from flattest.problem.checks import check_count, finite_array
from flattest.problem.fingerprint import recall, remember
from flattest.problem.randomness import generator

Params = dict[str, Any]
jnp = later("jax.numpy")


@runtime_checkable
class Model(Protocol):
    """What training and measures ask of a network.

    `init(d, seed)` draws the parameters: a dict of float64 arrays, for d inputs.
    `apply(params, x, train_x)` is f_θ on the rows of x, (n,) or for several outputs (n, k), pure
    JAX. `train_x` holds the training inputs, for networks whose output depends on them (Sim-BN);
    others ignore it.
    """

    def init(self, d: int, seed: int) -> Params: ...

    def apply(self, params: Params, x, train_x): ...


@dataclass(frozen=True)
class FunctionModel:
    """A user's own JAX functions as a model: `apply_fn(params, x)` and `init_fn(d, seed)`."""

    apply_fn: Callable[[Params, Any], Any]
    init_fn: Callable[[int, int], Params]
    name: str = "function"

    def init(self, d: int, seed: int) -> Params:
        return self.init_fn(d, seed)

    def apply(self, params: Params, x, train_x=None):
        return self.apply_fn(params, x)


class OwnModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="own_model"):
    """A user's own model in a spec, known by its name and its fingerprint.

    A spec that was read from a file finds the model where this process has made it.
    """

    name: str
    source: str

    @classmethod
    def of(cls, model: Model) -> "OwnModel":
        return cls(str(getattr(model, "name", type(model).__name__)), remember(model))

    @property
    def model(self) -> Model:
        return recall(self.source, f"model {self.name}")

    def init(self, d: int, seed: int) -> Params:
        return self.model.init(d, seed)

    def apply(self, params: Params, x, train_x=None):
        return self.model.apply(params, x, train_x)


class Init(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How parameters are drawn.

    `weights`: "uniform" is U(±1/√fan-in) for weights and first-layer biases (PyTorch's default
    for linear layers); "he" is N(0, 2/fan-in) with zero biases.
    `scales`: pairs (name, factor) that multiply single arrays, e.g. (("W1", 0.01), ("b1", 0.01)).
    `gamma`: Sim-BN's γ is drawn from U(±gamma). A common γ = 1 gives every neuron a squared
    gradient of order one, so that 2η‖∇f‖² exceeds 2 at the learning rates of wen2023's Table 2
    and the first steps diverge; a much smaller one falls into the saddle at γ = W2 = 0.
    """

    weights: Literal["uniform", "he"] = "uniform"
    scales: tuple[tuple[str, float], ...] = ()
    gamma: float = 0.4

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
        return _DRAWS[require_known("weight initialization", self.weights, _DRAWS)](
            rng, shape, fan_in
        )


_DRAWS = {
    "uniform": lambda rng, shape, fan_in: rng.uniform(-1, 1, shape) / np.sqrt(fan_in),
    "he": lambda rng, shape, fan_in: rng.normal(size=shape) * np.sqrt(2 / fan_in),
}
Norm = Literal["sim_bn", "sim_ln"]


class Normalization(NamedTuple):
    """What happens to r = σ(W1 x + b1) before the last layer.

    `of(model, params, r, train_r)` is r/ν, for Sim-BN times γ. `by_neuron`: ν_j is a statistic of
    neuron j over the training set, `train_r`, so that f at a point depends on all of it, and each
    neuron has its γ_j. `floored`: ν is at least ε, with a kink where ε takes over.
    """

    of: Callable[["MLP", Params, Any, Any], Any]
    by_neuron: bool = False
    floored: bool = False


class MLP(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="mlp"):
    """The networks of wen2023 and mulayoff2021, width m, with one output.

    depth D, no norm: W_D σ(… W2 σ(W1 x + b1)), a bias in the first layer only (2-MLP-No-Bias,
    2-MLP-Bias, MLP-Bias). norm "sim_bn": W2 (γ ⊙ r / s) with r = σ(W1 x + b1) and s_j the root
    mean square of r_j over the training inputs, through which gradients flow. norm "sim_ln":
    W2 r / max(‖r‖, ε). `output_bias` adds a scalar (mulayoff2021).

    Parameters: W1 (m, d), b1 (m,), hidden W_l (m, m), last W_D (m,), gamma (m,), b_out ().

    `activation_source` is filled in: the fingerprint of a registered activation, so that a spec
    is not taken for another that only shares the activation's name.
    """

    width: int
    depth: int = 2
    bias: bool = False
    activation: str = "relu"
    norm: Norm | None = None
    output_bias: bool = False
    epsilon: float = 1e-5
    initialization: Init = Init()
    activation_source: str = ""

    def __post_init__(self):
        # NumPy's integers and bools cannot be written to a spec.
        msgspec.structs.force_setattr(self, "width", check_count("The width", self.width))
        msgspec.structs.force_setattr(self, "depth", check_count("The depth", self.depth, least=2))
        for what in ("bias", "output_bias"):
            if not isinstance(getattr(self, what), bool | np.bool_):
                raise FlattestError(f"{what} must be True or False, not {getattr(self, what)!r}.")
            msgspec.structs.force_setattr(self, what, bool(getattr(self, what)))
        if not isinstance(self.initialization, Init):
            given = self.initialization
            raise FlattestError(f"An initialization is made by flattest.Init, not {given!r}.")
        if not isinstance(self.norm, str | None) or self.norm not in NORMS:
            raise unknown("norm", self.norm, map(str, NORMS))
        if self.norm is not None and self.depth != 2:
            raise FlattestError(f"norm {self.norm!r} is defined for depth 2, not {self.depth}.")
        if not isinstance(self.epsilon, int | float) or not self.epsilon > 0:
            raise FlattestError(f"Sim-LN's epsilon must be positive, not {self.epsilon!r}.")
        source = known_source(self.activation, self.activation_source)
        msgspec.structs.force_setattr(self, "activation_source", source)

    @property
    def sigma(self) -> Activation:
        return activation(self.activation)

    @property
    def normalization(self) -> Normalization:
        return NORMS[self.norm]

    @property
    def homogeneity(self) -> float | None:
        """c where W1_j, b1_j → b_j·, W2_j → b_j^{−c}· leaves a two-layer network unchanged."""
        return self.sigma.homogeneity if self.norm is None else None

    def shapes(self, d: int) -> dict[str, tuple[int, ...]]:
        """The parameters' shapes for d inputs, in order; more than fit in memory are refused."""
        m = self.width
        weights = float(m) * d + float(self.depth - 2) * m * m
        require_memory(weights, f"A network of width {m} and depth {self.depth} on {d} inputs")
        shapes: list[tuple[bool, str, tuple[int, ...]]] = [
            (True, "W1", (m, d)),
            (self.bias, "b1", (m,)),
            (self.normalization.by_neuron, "gamma", (m,)),
            *((True, f"W{layer}", (m, m)) for layer in range(2, self.depth)),
            (True, f"W{self.depth}", (m,)),
            (self.output_bias, "b_out", ()),
        ]
        return {name: shape for present, name, shape in shapes if present}

    def init(self, d: int, seed: int) -> Params:
        """Parameters drawn as `initialization` says, each from a stream of its own."""
        check_count("The input dimension", d)
        shapes = self.shapes(d)
        scales = _scales(self.initialization, shapes)
        return {
            name: self._draw(name, shape, d, seed) * scales.get(name, 1.0)
            for name, shape in shapes.items()
        }

    def _draw(self, name: str, shape: tuple[int, ...], d: int, seed: int) -> np.ndarray:
        rng, rule = generator(seed, f"init/{name}"), self.initialization
        if name == "gamma":
            return rng.uniform(-rule.gamma, rule.gamma, shape)
        values = np.asarray(rule.draw(rng, shape, d if name in ("W1", "b1") else self.width))
        # He normal comes with zero biases; the uniform rule treats them as weights.
        return values * (rule.weights == "uniform") if name in ("b1", "b_out") else values

    def check(self, params: Params, d: int) -> None:
        """Raises unless `params` are finite arrays of this network's shapes for d inputs."""
        shapes = self.shapes(d)
        if not isinstance(params, Mapping):
            raise FlattestError(f"Parameters are a dict of arrays, not {type(params).__name__}.")
        if set(params) != set(shapes):
            raise FlattestError(
                f"This network's parameters are {', '.join(shapes)}; given: {', '.join(params)}."
            )
        for name, shape in shapes.items():
            if np.shape(params[name]) != shape:
                raise FlattestError(
                    f"Parameter {name} must have shape {shape}, not {np.shape(params[name])}."
                )
            finite_array(f"Parameter {name}", params[name])

    def apply(self, params: Params, x, train_x=None):
        """f_θ on the rows of x; `train_x` are the training inputs (Sim-BN's statistics)."""
        return self._outputs(params, x, train_x, lambda place, h: self.sigma.value(h))

    def apply_in_pattern(self, at: Params, params: Params, x, train_x=None):
        """f_θ on the rows of x where every neuron is on the linear piece of σ that it is on under
        the parameters `at`: σ(h) is σ′(h under `at`) · h. For piecewise linear σ; the pattern is
        constant in θ."""
        slopes = self.slopes(at, x, train_x)
        return self._outputs(params, x, train_x, lambda place, h: slopes[place] * h)

    def slopes(self, params: Params, x, train_x=None) -> dict[Any, Any]:
        """σ′ at every pre-activation on the rows of x, by place: hidden layer, and for statistics
        the training set. Of a piecewise linear σ this is the activation pattern."""
        slopes: dict[Any, Any] = {}

        def noting(place, h):
            slopes[place] = self.sigma.slope(h)
            return self.sigma.value(h)

        self._outputs(params, x, train_x, noting)
        return slopes

    def _outputs(self, params: Params, x, train_x, activate: Callable[[Any, Any], Any]):
        """f_θ on the rows of x with activate(place, h) for σ(h), at every place where σ is."""
        r, train_r = activate(1, self._preactivation(params, x)), None
        if self.normalization.by_neuron:
            if train_x is None:
                raise FlattestError(
                    "Sim-BN needs the training inputs, train_x, for its statistics."
                )
            train_r = activate("training set", self._preactivation(params, train_x))
        r = self.normalization.of(self, params, r, train_r)
        for layer in range(2, self.depth):
            r = activate(layer, r @ params[f"W{layer}"].T)
        return r @ params[f"W{self.depth}"] + (params["b_out"] if self.output_bias else 0.0)

    def first_layer(self, params: Params, x):
        """r = σ(W1 x + b1), rows of x to rows of r."""
        return self.sigma.value(self._preactivation(params, x))

    def _preactivation(self, params: Params, x):
        h = x @ params["W1"].T
        return h + params["b1"] if self.bias else h


class DeepMLP(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="deep_mlp"):
    """W_D σ(… σ(W1 x + b1) …) + b_D: hidden layers of these `widths`, a bias in every layer, and
    one output per sample, f (n,), or several, f (n, outputs).

    Parameters: W1 (m_1, d), b1 (m_1,), …, the last W_D (outputs, m), b_D (outputs,).
    """

    widths: tuple[int, ...]
    outputs: int = 1
    activation: str = "relu"
    initialization: Init = Init()
    activation_source: str = ""

    def __post_init__(self):
        if not self.widths:
            raise FlattestError("A DeepMLP has at least one hidden layer: DeepMLP((64, 64)).")
        widths = tuple(check_count("A hidden layer's width", width) for width in self.widths)
        msgspec.structs.force_setattr(self, "widths", widths)
        outputs = check_count("The number of outputs", self.outputs)
        msgspec.structs.force_setattr(self, "outputs", outputs)
        source = known_source(self.activation, self.activation_source)
        msgspec.structs.force_setattr(self, "activation_source", source)

    @property
    def name(self) -> str:
        return f"layers of {', '.join(map(str, self.widths))}"

    def shapes(self, d: int) -> dict[str, tuple[int, ...]]:
        """The parameters' shapes for d inputs, in order."""
        sizes = d, *self.widths, self.outputs
        return {
            f"{kind}{layer}": (m, fan_in) if kind == "W" else (m,)
            for layer, (fan_in, m) in enumerate(itertools.pairwise(sizes), 1)
            for kind in "Wb"
        }

    def init(self, d: int, seed: int) -> Params:
        """Parameters drawn as `initialization` says, each from a stream of its own."""
        shapes, rule = self.shapes(check_count("The input dimension", d)), self.initialization
        scales = _scales(rule, shapes)
        params = {}
        for name, shape in shapes.items():
            fan_in = shapes[f"W{name[1:]}"][1]
            values = rule.draw(generator(seed, f"init/{name}"), shape, fan_in)
            kept = name[0] == "W" or rule.weights == "uniform"  # He normal has zero biases
            params[name] = np.asarray(values) * kept * scales.get(name, 1.0)
        return params

    def apply(self, params: Params, x, train_x=None):
        """f_θ on the rows of x."""
        sigma, last = activation(self.activation), len(self.widths) + 1
        for layer in range(1, last):
            x = sigma.value(x @ params[f"W{layer}"].T + params[f"b{layer}"])
        f = x @ params[f"W{last}"].T + params[f"b{last}"]
        return f[:, 0] if self.outputs == 1 else f


def known_source(name: str, source: str) -> str:
    """The fingerprint of the activation of this name; raises where `source`, that of the network's
    spec, is another."""
    found = activation(name).fingerprint
    if source not in ("", found):
        raise FlattestError(f"The activation {name!r} is not the one this network was made with.")
    return found


def _scales(rule: Init, shapes: Mapping[str, Any]) -> dict[str, float]:
    """The factors of single arrays; raises for an array that the network does not have."""
    scales = dict(rule.scales)
    if extra := set(scales) - set(shapes):
        raise unknown("parameter in init scales:", ", ".join(sorted(extra)), shapes)
    return scales


def _sim_bn(model: MLP, params: Params, r, train_r):
    square = (train_r**2).mean(axis=0)
    # 1 for a neuron that is 0 on all training inputs, whose output is 0.
    return params["gamma"] * r / _root(square, square == 0, 1.0)


def _sim_ln(model: MLP, params: Params, r, train_r):
    square = (r**2).sum(axis=1)
    return r / _root(square, square <= model.epsilon**2, model.epsilon)[:, None]


NORMS: dict[Norm | None, Normalization] = {
    None: Normalization(lambda model, params, r, train_r: r),
    "sim_bn": Normalization(_sim_bn, by_neuron=True),
    "sim_ln": Normalization(_sim_ln, floored=True),
}


AnyModel = MLP | DeepMLP | OwnModel


def declared(model: Model) -> AnyModel:
    """The model as a spec can have it: a user's own by its fingerprint."""
    return model if isinstance(model, AnyModel) else OwnModel.of(model)


def shapes(model: Model, d: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the parameters for d inputs, in order."""
    if isinstance(model, MLP | DeepMLP):
        return model.shapes(d)
    return {name: np.shape(value) for name, value in model.init(d, 0).items()}


def is_by_neuron(model: Model) -> bool:
    """Whether f at a point depends on the whole training set, as Sim-BN's does."""
    return isinstance(model, MLP) and model.normalization.by_neuron


def largest_neurons(W1: np.ndarray, count: int = 4) -> np.ndarray:
    """Rows (W1[1], W1[2], ‖W1[3:d]‖) of the neurons of largest norm, largest first.

    For xor data these tell a network that generalizes (wen2023, Figure 2b).
    """
    largest = W1[np.argsort(-np.linalg.norm(W1, axis=1))[:count]]
    return np.column_stack([largest[:, :2], np.linalg.norm(largest[:, 2:], axis=1)])


def in_float64(params: Params) -> Params:
    """The parameters as float64 NumPy arrays."""
    return {name: np.asarray(value, np.float64) for name, value in params.items()}


def predict(model: Model, params: Params, x, train_x) -> np.ndarray:
    """f_θ on the rows of x as float64 NumPy, with parameters of any precision."""
    if not isinstance(model, MLP):
        return predict_by_jax(model, params, x, train_x)
    # NumPy has nothing to compile, where JAX compiles every operation for every shape. What
    # overflows is infinite without a word, as it is in JAX.
    with np.errstate(all="ignore"):
        return np.asarray(model.apply(in_float64(params), np.asarray(x), np.asarray(train_x)))


def predict_by_jax(model: Model, params: Params, x, train_x) -> np.ndarray:
    """`predict` by JAX, whose bits do not depend on the number of BLAS threads."""
    exact = {name: jnp.asarray(value, jnp.float64) for name, value in params.items()}
    return np.asarray(model.apply(exact, jnp.asarray(x), jnp.asarray(train_x)))


def _root(square, small, least: float):
    """√square, and `least` with gradient 0 where the square is `small`."""
    xp = square.__array_namespace__()
    return xp.where(small, least, xp.sqrt(xp.where(small, 1.0, square)))
