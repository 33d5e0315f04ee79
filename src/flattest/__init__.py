"""flattest: are the flattest minima the ones that generalize, and does the algorithm find them?

`import flattest as ft` imports nothing else: a public name brings its module along when it is first
asked for. `__init__.pyi` says which module that is.
"""

import ast
import difflib
import importlib
import os
import sys
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
    if _HOMES[name] == __name__:
        return importlib.import_module(f"{__name__}.{name}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
