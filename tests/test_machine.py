"""What processes inherit, when an interrupt is heard, and when a module is imported."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

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
