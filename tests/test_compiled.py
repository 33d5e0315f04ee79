"""Kernels are compiled for a kind of processor, so that machines of a kind have the same bits."""

import os
import subprocess
import sys

from flattest.compiled import KINDS, kind

TARGET = """
import numba
from flattest.training import order
from numba.core.registry import cpu_target
order.sample_order(0, 0, 1, 3, False)
print(*cpu_target.target_context.codegen().magic_tuple()[1:], sep=",")
"""


def target(**told):
    told = {"JAX_PLATFORMS": "cpu"} | told
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_CPU")}
    done = subprocess.run(
        [sys.executable, "-c", TARGET], env=kept | told, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_kind_is_the_widest_whose_instructions_are_all_there():
    for name, wanted in KINDS.items():
        has = dict.fromkeys(wanted, True)
        assert kind(has | {"avx512bf16": True, "sse4a": True}) == name
        assert kind(has | {wanted[0]: False}) != name
    assert kind(dict.fromkeys(sum(KINDS.values(), ()), True)) == "skylake-avx512"
    assert kind({"neon": True}) is None


def test_numba_compiles_for_the_kind_unless_it_is_told_for_what():
    """With no instruction beyond the kind's, which would be the model's own."""
    from llvmlite import binding

    found = kind(binding.get_host_cpu_features())
    if found is not None:
        assert target() == f"{found},"
    assert target(NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES="") == "x86-64,"
