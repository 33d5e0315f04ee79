"""A process that compiles a kernel and one that loads it from disk run the same code.

Numba compiles what a kernel calls by itself and once more within the kernel, maybe to other last
bits; the first is on hand only in the process that compiles.
"""

import os
import subprocess
import sys

import pytest
from llvmlite.binding import Linkage

import flattest as ft
from flattest.problem.distributions import Univariate
from flattest.training.kernels import batches, sim_bn, single, univariate
from flattest.training.univariate import descend, watch

pytestmark = pytest.mark.slow

NETWORK = ft.MLP(width=5, bias=True)
UNIVARIATE = ft.MLP(width=5, bias=True, output_bias=True)


def train(model, batch):
    ft.train(model, ft.xor(n=8, d=4, seed=0), [ft.sam(0.01, 0.1, batch, epochs=1)], backend="fused")


def follow():
    data, phase = Univariate().draw(4, 0), ft.gd(0.01, steps=1)
    descend(UNIVARIATE.init(1, 0), data, [phase])
    watch(UNIVARIATE.init(1, 0), data, lr=0.01, steps=1)


KERNELS = {
    "single": (single.run, lambda: train(NETWORK, 1)),
    "batches": (batches.run, lambda: train(NETWORK, 2)),
    "sim_bn": (sim_bn.run, lambda: train(ft.MLP(width=5, norm="sim_bn"), 1)),
    "univariate descend": (univariate.descend, follow),
    "univariate watch": (univariate.watch, follow),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_shares_no_code_with_what_it_calls(name):
    kernel, use = KERNELS[name]
    use()
    assert kernel.overloads
    for compiled in kernel.overloads.values():
        functions = compiled.library._get_module_for_linking().functions
        shared = {f.name for f in functions if f.linkage == Linkage.linkonce_odr}
        entries = compiled.fndesc.llvm_func_name, compiled.fndesc.llvm_cpython_wrapper_name
        assert compiled.fndesc.llvm_func_name in shared
        assert shared <= set(entries)


def test_a_process_that_compiles_and_one_that_loads_a_kernel_take_the_same_steps(tmp_path):
    script = (
        "import flattest as ft\n"
        "model, data = ft.MLP(50, bias=True, norm='sim_bn'), ft.xor(40, 10, seed=0)\n"
        "run = ft.train(model, data, [ft.sam(0.01, 0.05, epochs=60)], backend='fused')\n"
        "print({name: value.tobytes().hex() for name, value in run.params.items()})\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    compiled, loaded = (
        subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    )
    assert compiled == loaded


INTERRUPTED = """
import signal
import flattest as ft

def stop(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, stop)
data, caught = ft.xor(n=8, d=4, seed=0), 0
for model, batch in (
    (ft.MLP(width=5, bias=True), 1),
    (ft.MLP(width=5, bias=True), 2),
    (ft.MLP(width=5, norm="sim_bn"), 1),
):
    for epochs in (1, 10**9):
        signal.setitimer(signal.ITIMER_REAL, 0.3 if epochs > 1 else 0)
        try:
            ft.train(model, data, [ft.sam(0.01, 0.1, batch, epochs=epochs)], backend="fused")
        except KeyboardInterrupt:
            caught += 1
print("caught", caught)
"""


def test_an_interrupt_during_a_kernel_is_raised_after_it():
    """Of a kernel that trains single samples, batches, and Sim-BN."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "caught 3\n"), done.stderr
