"""Modules of Equinox, Flax and PyTorch as models: parameters by their path in the module, drawn by
the seed.

A user gives a function that makes the module, so that every seed draws its own parameters; a module
of flax.linen holds none and is given itself. Outputs (n, 1) are one output per sample, (n,).
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flattest.errors import FlattestError
from flattest.machine import later
from flattest.problem.models import Model, OwnModel, Params

jax, jnp = later("jax"), later("jax.numpy")
torch = later("torch")


@dataclass(frozen=True, eq=False)
class EquinoxModel:
    """The module `make(d, key)`, a tree that maps one sample to its outputs."""

    make: Callable[[int, Any], Any]
    name: str = "equinox"

    def init(self, d: int, seed: int) -> Params:
        return _named(self.make(d, jax.random.key(seed)))

    def apply(self, params: Params, x, train_x=None):
        module = _filled(_made(self, x.shape[-1]), params)
        return _outputs(jax.vmap(module)(x))

    def skeleton(self, d: int) -> Any:
        return self.make(d, jax.random.key(0))


@dataclass(frozen=True, eq=False)
class LinenModel:
    """A module of flax.linen, which maps rows of x to rows of outputs."""

    module: Any
    name: str = "flax"

    def init(self, d: int, seed: int) -> Params:
        return _named(self._variables(d, jax.random.key(seed)))

    def apply(self, params: Params, x, train_x=None):
        filled = _filled(_made(self, x.shape[-1]), params)
        return _outputs(self.module.apply({"params": filled}, x))

    def skeleton(self, d: int) -> Any:
        return self._variables(d, jax.random.key(0))

    def __fingerprint__(self) -> Any:
        return [self.name, _settings(self.module)]

    def _variables(self, d: int, key) -> Any:
        variables = self.module.init(key, jnp.zeros((1, d)))
        _require_only_parameters(set(variables) - {"params"})
        return variables["params"]


@dataclass(frozen=True, eq=False)
class NnxModel:
    """The module `make(d, rngs)` of flax.nnx, which maps rows of x to rows of outputs."""

    make: Callable[[int, Any], Any]
    name: str = "flax"

    def init(self, d: int, seed: int) -> Params:
        return _named(self._split(d, seed)[1])

    def apply(self, params: Params, x, train_x=None):
        from flax import nnx

        graph, state = _made(self, x.shape[-1])
        return _outputs(nnx.merge(graph, _filled(state, params))(x))

    def skeleton(self, d: int) -> Any:
        return self._split(d, 0)

    def _split(self, d: int, seed: int) -> tuple[Any, Any]:
        from flax import nnx

        graph, *states = nnx.split(self.make(d, nnx.Rngs(seed)), nnx.Param, ...)
        state, rest = states
        _require_only_parameters({str(path[-1]) for path, _ in nnx.to_flat_state(rest)})
        return graph, state


@dataclass(frozen=True, eq=False)
class TorchModel:
    """The PyTorch module `make(d)`, which maps rows of x to rows of outputs.

    It is trained in PyTorch and measured by `flattest.torch`; `apply` computes its outputs in
    float64, and is not to be differentiated by JAX.
    """

    make: Callable[[int], Any]
    name: str = "pytorch"

    def init(self, d: int, seed: int) -> Params:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            named = self._checked(d).named_parameters()
            return {name: p.detach().double().numpy() for name, p in named}

    def apply(self, params: Params, x, train_x=None) -> np.ndarray:
        x = np.array(x, np.float64)
        with torch.no_grad():
            return _outputs(self.filled(params, x.shape[1])(torch.from_numpy(x)).numpy())

    def filled(self, params: Params, d: int, dtype: Any = np.float64) -> Any:
        """A module of its own with these parameters, in the precision asked for."""
        module = self._checked(d).to(getattr(torch, np.dtype(dtype).name))
        with torch.no_grad():
            for name, p in module.named_parameters():
                p.copy_(torch.tensor(np.asarray(params[name], dtype)))
        return module

    def _checked(self, d: int) -> Any:
        module = self.make(d)
        if not isinstance(module, torch.nn.Module):
            raise FlattestError(
                f"{self.name} made a {type(module).__name__}, not a torch.nn.Module."
            )
        random = torch.nn.modules.dropout._DropoutNd, torch.nn.RReLU
        kept = [name for name, _ in module.named_buffers()]
        _require_only_parameters(
            {*kept, *(type(part).__name__ for part in module.modules() if isinstance(part, random))}
        )
        if any(not p.requires_grad for p in module.parameters()):
            raise FlattestError("Every parameter of the module is trained; none may be frozen.")
        return module


def pytorch(make: Callable[[int], Any], name: str = "") -> TorchModel:
    """The PyTorch module that `make(d)` makes for d inputs, as a model.

    Inputs are rows; images begin with `torch.nn.Unflatten(1, (1, 8, 8))`. The module is trained in
    PyTorch by the algorithm that is declared, and measured by `flattest.torch`.
    """
    _require_function(make, "ft.pytorch(lambda d: torch.nn.Linear(d, 1))")
    return TorchModel(make, name or _name_of(make, "pytorch"))


def torch_model(model: Any) -> TorchModel | None:
    """The model, also that of a spec, where it is a PyTorch module; else None."""
    found = model.model if isinstance(model, OwnModel) else model
    return found if isinstance(found, TorchModel) else None


def equinox(make: Callable[[int, Any], Any], name: str = "") -> EquinoxModel:
    """The Equinox module that `make(d, key)` makes, as a model: it is applied sample by sample.

    As in `ft.equinox(lambda d, key: eqx.nn.MLP(d, "scalar", 32, 2, key=key))`.
    """
    _require_function(make, "ft.equinox(lambda d, key: eqx.nn.MLP(d, 'scalar', 32, 2, key=key))")
    return EquinoxModel(make, name or _name_of(make, "equinox"))


def flax(module: Any, name: str = "") -> LinenModel | NnxModel:
    """A module of flax.linen, or the one of flax.nnx that `module(d, rngs)` makes, as a model."""
    if _is_of(module, "flax.linen"):
        return LinenModel(module, name or type(module).__name__)
    _require_function(module, "ft.flax(lambda d, rngs: MyModule(d, rngs=rngs))")
    return NnxModel(module, name or _name_of(module, "flax"))


def adopted(model: Any) -> Any:
    """The model, where it is one; a module that has drawn its parameters is refused."""
    if _is_of(model, "flax.linen"):
        return flax(model)
    for library, maker in _MAKERS.items():
        if _is_of(model, library):
            raise FlattestError(
                f"This {type(model).__name__} has drawn its parameters already; give a function "
                f"that makes it, so that every seed draws its own: {maker}."
            )
    return model


_MAKERS = {
    "equinox": "ft.equinox(lambda d, key: …)",
    "flax.nnx": "ft.flax(lambda d, rngs: …)",
    "torch.nn": "ft.pytorch(lambda d: …)",
}


def _is_of(thing: Any, library: str) -> bool:
    """Whether it is a module of the library, which need not be installed."""
    kinds = [] if isinstance(thing, type) else type(thing).__mro__
    return any(f"{kind.__module__}.".startswith(f"{library}.") for kind in kinds)


def _require_function(make: Any, example: str) -> None:
    adopted(make)
    if not callable(make) or isinstance(make, Model):
        raise FlattestError(f"A function that makes the module is asked for, as {example}.")


def _name_of(make: Any, otherwise: str) -> str:
    name = getattr(make, "__name__", otherwise)
    return otherwise if name == "<lambda>" else name


def _require_only_parameters(others: set[str]) -> None:
    if others:
        raise FlattestError(
            f"Beside its parameters the module keeps {', '.join(sorted(others))}; only networks "
            "that are functions of their parameters (no batch statistics, no dropout) can be "
            "trained here."
        )


def _settings(thing: Any) -> Any:
    """Linen modules as their class and fields: their other attributes count modules as they are
    made."""
    if _is_of(thing, "flax.linen") and dataclasses.is_dataclass(thing):
        names = (field.name for field in dataclasses.fields(thing) if field.name != "parent")
        return [type(thing), {name: _settings(getattr(thing, name)) for name in names}]
    if isinstance(thing, Mapping):
        return {name: _settings(value) for name, value in thing.items()}
    return [_settings(part) for part in thing] if isinstance(thing, list | tuple) else thing


@functools.lru_cache(maxsize=64)
def _made(model: Any, d: int) -> Any:
    """What the model makes for d inputs, to be filled; made outside of what is being compiled."""
    with jax.ensure_compile_time_eval():
        return model.skeleton(d)


def _paths(tree: Any) -> tuple[dict[str, Any], Any]:
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = (jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves)
    return dict(zip(names, (leaf for _, leaf in leaves), strict=True)), structure


def _named(tree: Any) -> Params:
    """The arrays of real numbers in the tree, by path, in float64."""
    found = {
        name: np.asarray(leaf, np.float64)
        for name, leaf in _paths(tree)[0].items()
        if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
    }
    if not found:
        raise FlattestError("The module has no parameters.")
    return found


def _filled(tree: Any, params: Params) -> Any:
    """The tree with these parameters in their places."""
    leaves, structure = _paths(tree)
    return jax.tree.unflatten(structure, [params.get(name, leaf) for name, leaf in leaves.items()])


def _outputs(f):
    return f[:, 0] if f.ndim == 2 and f.shape[1] == 1 else f
