"""flattest: are the flattest minima the ones that generalize, and does the algorithm find them?

    import flattest as ft

    data = ft.xor(n=100, d=30, seed=0)       # also your own arrays: ft.Dataset(x, y, ...)
    model = ft.MLP(width=500, bias=True)     # also JAX functions, and PyTorch modules by ft.torch
    params = model.init(d=30, seed=0)
    print(ft.measure(model, params, data))   # the trace, the least over rescalings, and more

How flat is a network?          ft.measure, ft.trace, ft.top_eigenvalue, ft.spectrum, ft.league,
                                ft.explain; ft.torch has them for PyTorch modules
How flat could it be?           ft.flattest_rescaling, ft.flattest_network, ft.flattest_range,
                                ft.lower_bound, ft.search_flattest
Is it proven?                   ft.certify, ft.Verdict; networks from proofs: ft.memorizer,
                                ft.xor_generalizer, ft.sim_bn_spike, ft.bad_twin, ...
What does training find?        ft.train with ft.sam, ft.gd, ft.label_noise_sgd, ft.adam, ft.flow;
                                ft.Watch measures while you train
Which scenario is my setup?     ft.Setup, ft.judge, ft.sweep
What do the papers' runs say?   ft.experiment, ft.Store; the command `flattest` runs and checks them

Every name has a docstring: help(ft.measure). dir(ft) lists them all; the documentation's reference
has an example of each.

Importing flattest imports nothing else: a public name brings its module along when it is first
asked for. `__init__.pyi` says which module that is.
"""

import ast
import difflib
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# What is reported is computed in float64. JAX reads this variable when it is imported.
os.environ["JAX_ENABLE_X64"] = "1"
if "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_enable_x64", True)


def _homes() -> dict[str, str]:
    """The module of each public name."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version(__name__)
    if name not in _HOMES:
        near = difflib.get_close_matches(name, _HOMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "dir(flattest) lists what there is."
        raise AttributeError(f"flattest has no public name {name!r}; {hint}")
    home = _HOMES[name]
    with _numpys_randomness():
        module = importlib.import_module(f"{home}.{name}" if home == __name__ else home)
    if home == __name__:
        return module
    value = getattr(module, name)
    globals()[name] = value
    return value


@contextmanager
def _numpys_randomness() -> Iterator[None]:
    """Inside, NumPy's global random numbers may be drawn (importing JAX does); after, they are what
    they were."""
    numpy = sys.modules.get("numpy")
    state = None if numpy is None else numpy.random.get_state()
    try:
        yield
    finally:
        if numpy is not None:
            numpy.random.set_state(state)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
