"""Bars on a terminal, for what takes long, and nothing elsewhere."""

import io
from contextlib import redirect_stderr

import pytest

from flattest.curvature import progress as bars
from flattest.curvature.progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(bars, "DELAY", 0.0)
    monkeypatch.setattr(bars, "PAUSE", 0.0)


def test_a_bar_and_the_bar_of_its_part_are_shown(at_once):
    with redirect_stderr(Terminal()) as terminal, progress("products", 3) as product:
        for _ in range(3):
            with progress("samples", 50) as samples:
                samples(20)
            product()
    shown = terminal.getvalue()
    assert "products" in shown
    assert "20/50" in shown
    assert "2/3" in shown


def test_after_an_error_the_next_bar_is_shown_again(at_once):
    with redirect_stderr(Terminal()) as terminal:
        with pytest.raises(ZeroDivisionError), progress("first", 2) as done:
            done(1 // 0)
        with progress("second", 2) as done:
            done()
    assert "second" in terminal.getvalue()


def test_what_is_short_shows_nothing():
    with redirect_stderr(Terminal()) as terminal, progress("products", 3) as done:
        done()
    assert terminal.getvalue() == ""


def test_without_a_terminal_nothing_is_shown(at_once):
    with redirect_stderr(io.StringIO()) as stream, progress("products", 3) as done:
        done()
    assert stream.getvalue() == ""
