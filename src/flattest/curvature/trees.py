"""Parameters as JAX's libraries keep them: which leaves of a tree are differentiated.

A Flax dict of variables has its parameters under "params"; what stands beside them (`batch_stats`)
is a constant of the function, and so are integers, masks and keys in any tree. A module of Equinox,
or of flax.nnx, is a tree of parameters and of much else: activation functions, numbers of layers,
statistics.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from flattest.errors import FlattestError


class Parted(NamedTuple):
    """function(params, x) of parameters alone, and the whole tree with others in their place."""

    function: Callable[[Any, Any], Any]
    params: Any
    restored: Callable[[Any], Any]


def parted(function: Any, params: Any) -> Parted:
    """The function of its parameters; without `params` the function is a module that holds them."""
    if params is None:
        return _of_module(function)
    if isinstance(params, Mapping) and "params" in params and len(params) > 1:
        first = jax.tree_util.DictKey("params")
        return _split(function, params, lambda path, leaf: path[0] == first)
    if _is_equinox(params):
        return _split(function, params, lambda path, leaf: _is_real_array(leaf))
    if any(map(_is_no_number, jax.tree.leaves(params))):
        return _split(function, params, lambda path, leaf: not _is_no_number(leaf))
    return Parted(function, params, lambda params: params)


def _of_module(module: Any) -> Parted:
    if _is_equinox(module):
        return parted(lambda module, x: jax.vmap(module)(x), module)
    nnx = sys.modules.get("flax.nnx")
    if nnx is None or not isinstance(module, nnx.Module):
        raise FlattestError(
            "Without parameters (None) a module of Equinox or of flax.nnx is measured, which holds "
            f"its own, not a {type(module).__name__}."
        )
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    return Parted(
        lambda params, x: nnx.merge(graph, params, rest)(x),
        params,
        lambda params: nnx.merge(graph, params, rest),
    )


def _is_equinox(tree: Any) -> bool:
    equinox = sys.modules.get("equinox")
    return equinox is not None and isinstance(tree, equinox.Module)


def _is_no_number(leaf: Any) -> bool:
    """Whether it is an array that JAX does not differentiate: integers, masks, keys."""
    kinds = np.integer, np.bool_, jax.dtypes.prng_key
    own = getattr(leaf, "dtype", None)
    if own is None:
        return isinstance(leaf, int)
    return any(jnp.issubdtype(own, kind) for kind in kinds)


def _is_real_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(leaf.dtype, jnp.floating)


def _split(function: Any, tree: Any, chosen: Callable[[Any, Any], bool]) -> Parted:
    """Parameters are the leaves that are `chosen`, by their path; the others stay as they are."""
    paths, form = jax.tree_util.tree_flatten_with_path(tree)
    own = [chosen(path, leaf) for path, leaf in paths]
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    params = {n: leaf for n, (_, leaf), mine in zip(names, paths, own, strict=True) if mine}

    def restored(params):
        leaves = [
            params[name] if mine else _in_double(leaf)
            for name, (_, leaf), mine in zip(names, paths, own, strict=True)
        ]
        return jax.tree_util.tree_unflatten(form, leaves)

    return Parted(lambda params, x: function(restored(params), x), params, restored)


def _in_double(leaf: Any) -> Any:
    return jnp.asarray(leaf, jnp.float64) if _is_real_array(leaf) else leaf
