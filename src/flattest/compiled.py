"""Numba, compiling for a kind of processor and not for the very model.

LLVM cuts sums into vectors as wide as it thinks best for a model, and descent can make of the last
bit another minimum (docs/reliability.md compares two kinds of processors). So what is compiled here
is compiled for the first model that had the instructions of this machine's kind, and machines of a
kind have the same bits. `NUMBA_CPU_NAME` says otherwise where it is set, and so does what Numba
compiled earlier in the process. Elsewhere than on x86 it is the model that counts.

What is compiled is kept on disk, and Numba writes first which file has a function's code, and then
the file. A process that is killed in between leaves the name of a file with other code: that of an
earlier version, or for other types. So do two processes that compile at once. All that come later,
or in that moment, would train with it. Here the code is written first.
"""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba.core.caching import IndexDataCacheFile

# Its names are set when it is read.
config: Any = numba.config

# The first models that had them, with the instructions that count; the widest first.
KINDS = {
    "skylake-avx512": ("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma"),
    "haswell": ("avx2", "fma", "bmi", "bmi2", "lzcnt", "movbe"),
}


class CodeFirst(IndexDataCacheFile):
    """The files of a function's compiled code; none is ever written again under its name."""

    def save(self, key: Any, data: Any) -> None:
        name = self._data_name(uuid.uuid4().int >> 65)
        self._save_data(name, data)
        # Of two processes that save at once one may be forgotten, and compiles again next time.
        kept = {**self._load_index(), key: name}
        self._save_index(kept)
        base, names = self._index_name.removesuffix("nbi"), set(kept.values())
        for path in Path(self._cache_path).glob("*.nbc"):
            if path.name.startswith(base) and path.name not in names:
                path.unlink(missing_ok=True)


def njit(*functions: Callable[..., Any], **options: Any) -> Any:
    """`numba.njit`, whose code is kept as above."""
    compiler: Any = numba.njit
    made = compiler(*functions, **options)
    if not functions:
        return lambda function: kept_code_first(made(function))
    return kept_code_first(made)


def kept_code_first(function: Any) -> Any:
    """The same function; one that Numba does not keep, or does not compile, is left alone."""
    files = getattr(getattr(function, "_cache", None), "_cache_file", None)
    if type(files) is IndexDataCacheFile:
        files.__class__ = CodeFirst
    return function


def kind(features: dict[str, bool]) -> str | None:
    """The first of `KINDS` whose instructions are all there; None for none."""
    return next((k for k, wanted in KINDS.items() if all(map(features.get, wanted))), None)


def choose() -> None:
    """Has Numba compile for this machine's kind, unless it was told for what."""
    found = kind(binding.get_host_cpu_features())
    if config.CPU_NAME is None and found is not None:
        config.CPU_NAME, config.CPU_FEATURES = found, ""


choose()
