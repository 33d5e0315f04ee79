"""Kernels are compiled for a kind of processor, so that machines of a kind have the same bits."""

import importlib.util
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


class Killed(BaseException):
    pass


def answer(folder, number, monkeypatch, killed=False):
    """What a function that returns the number returns, compiled or found; None where the process
    is killed when the first of the two files of its code has its name."""
    path = folder / "kept.py"
    path.write_text(
        f"from flattest.compiled import njit\n@njit(cache=True)\ndef f():\n    return {number}\n"
    )
    os.utime(path, (number, number))
    spec = importlib.util.spec_from_file_location("kept", path)
    module = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        spec.loader.exec_module(module)
        replace = os.replace

        def and_die(*names):
            replace(*names)
            raise Killed

        if killed:
            patch.setattr(os, "replace", and_die)
        try:
            return module.f()
        except Killed:
            return None


def test_a_process_killed_while_it_keeps_its_code_leaves_no_other_code(tmp_path, monkeypatch):
    """Numba alone returns 1 at the end: the index of version 2 names the file of version 1."""
    assert answer(tmp_path, 1, monkeypatch) == 1
    assert answer(tmp_path, 2, monkeypatch, killed=True) is None
    assert answer(tmp_path, 2, monkeypatch) == 2


def test_code_is_kept_for_the_next_process(tmp_path, monkeypatch):
    assert answer(tmp_path, 3, monkeypatch) == 3
    assert answer(tmp_path, 3, monkeypatch, killed=True) == 3
    assert answer(tmp_path, 4, monkeypatch) == 4
    assert len([*tmp_path.rglob("*.nbc")]) == len([*tmp_path.rglob("*.nbi")]) == 1
