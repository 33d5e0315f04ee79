"""Numba, compiling for a kind of processor and not for the very model.

LLVM cuts sums into vectors as wide as it thinks best for a model, and descent makes of the last bit
another minimum: with Sim-LN a seed of wen2023's Figure 10b ended with 1 % of test points wrong on
one processor with AVX-512 and with 36 % on another. So what is compiled here is compiled for the
first model that had the instructions of this machine's kind, and machines of a kind have the same
bits. `NUMBA_CPU_NAME` says otherwise where it is set, and so does what Numba compiled earlier in
the process. Elsewhere than on x86 it is the model that counts.
"""

from typing import Any

import numba
from llvmlite import binding
from numba import njit

__all__ = ["njit"]

# Its names are set when it is read.
config: Any = numba.config

# The first models that had them, with the instructions that count; the widest first.
KINDS = {
    "skylake-avx512": ("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx2", "fma"),
    "haswell": ("avx2", "fma", "bmi", "bmi2", "lzcnt", "movbe"),
}


def kind(features: dict[str, bool]) -> str | None:
    """The first of `KINDS` whose instructions are all there; None for none."""
    return next((k for k, wanted in KINDS.items() if all(map(features.get, wanted))), None)


def choose() -> None:
    """Has Numba compile for this machine's kind, unless it was told for what."""
    found = kind(binding.get_host_cpu_features())
    if config.CPU_NAME is None and found is not None:
        config.CPU_NAME, config.CPU_FEATURES = found, ""


choose()
