"""What processes inherit, when an interrupt is heard, and when a module is imported."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import flattest as ft
from flattest import machine
from flattest.errors import FlattestError
from flattest.files import read_arrays
from flattest.machine import available_cores, interrupts_held_back, one_thread_each, share_of_cores


@pytest.fixture(autouse=True)
def heard():
    """Python's own handler: a shell starts what runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted() -> bool:
    """Whether a block that is interrupted in its middle comes to its end."""
    ended = False
    with contextlib.suppress(KeyboardInterrupt), interrupts_held_back():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        ended = True
    return ended


def test_an_interrupt_waits_for_the_end_of_the_block():
    assert interrupted()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_is_not_lost():
    block = interrupts_held_back()
    block.__enter__()
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        block.__exit__(None, None, None)


def test_it_waits_also_where_another_thread_takes_the_signal():
    # A mask is of one thread: with another at hand, the system gives the signal to that.
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    try:
        assert interrupted()
    finally:
        end.set()
        other.join()


def test_processes_started_in_the_block_do_not_hear_it():
    with interrupts_held_back():
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.kill()
    process.wait()


def test_processes_have_one_thread_each_and_the_environment_is_as_before(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    for name in ("OPENBLAS_NUM_THREADS", "FLATTEST_CORES"):
        monkeypatch.delenv(name, raising=False)
    with one_thread_each():
        assert os.environ["OMP_NUM_THREADS"] == os.environ["OPENBLAS_NUM_THREADS"] == "1"
        assert share_of_cores() == 1
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OPENBLAS_NUM_THREADS" not in os.environ
    assert share_of_cores() == available_cores()


def test_a_module_for_later_is_imported_when_it_is_used():
    script = """
import sys
from flattest.machine import later
fractions = later("fractions")
assert "fractions" not in sys.modules
assert fractions.Fraction(2, 4).denominator == 2
assert "fractions" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


HUGE = {
    "points": (lambda: ft.Xor(30).draw(10**11, 0), "100000000000 points in 30 dimensions"),
    "inputs": (lambda: ft.Xor(10**11).draw(100, 0), "100 points in 100000000000 dimensions"),
    "test points": (lambda: ft.Ball(10).population(10**12), "1000000000000 test points"),
    "width": (lambda: ft.MLP(10**10).init(30, 0), "A network of width 10000000000 and depth 2"),
    "depth": (lambda: ft.MLP(500, depth=10**9).init(30, 0), "depth 1000000000 on 30 inputs"),
    "memorizer": (
        lambda: ft.memorizer(ft.xor(100, 30, 0), depth=10**7),
        "A network of width 100 and depth 10000000",
    ),
    "log": (lambda: ft.Log(points=10**12), "at most 1000000 points"),
}


@pytest.mark.parametrize("what", HUGE)
def test_sizes_are_refused_before_memory_is_taken(what):
    call, said = HUGE[what]
    with pytest.raises(FlattestError, match=said):
        call()


def test_an_archive_that_would_unpack_to_more_than_there_is_room_for_is_refused(
    tmp_path, monkeypatch
):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros((1000, 1000)), y=np.zeros(1000))
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(machine, "memory", lambda: 4e6)
    with pytest.raises(FlattestError, match="is too large: What is packed in it would need 0.008"):
        read_arrays(path)
