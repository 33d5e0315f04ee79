"""A function from a user's Python file, named FILE.py:FUNCTION."""

import contextlib
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flattest
from flattest.errors import FlattestError, said
from flattest.runs.user_file import Reference, imported


def parse(reference: str) -> Reference:
    """FILE.py:FUNCTION, of a file that is there."""
    path, name = Path(reference.rpartition(":")[0]), reference.rpartition(":")[2]
    if path.suffix != ".py" or not name:
        raise FlattestError(f"Say FILE.py:FUNCTION, as in lab.py:setup, not {reference!r}.")
    if not path.is_file():
        raise FlattestError(f"There is no file {path}.")
    return Reference(path, name)


def load(reference: str) -> Callable[..., Any]:
    """The function that `reference` names; what the file raises is said in one sentence."""
    path, name = parse(reference)
    function = getattr(run(lambda: imported(path), f"Importing {path}"), name, None)
    if not callable(function):
        raise FlattestError(f"{path} defines no function {name!r}.")
    return function


def run(action: Callable[[], Any], what: str) -> Any:
    """Do what the user's code says; its own errors become a sentence that names them.

    What it prints goes to the error stream: the output may be JSON.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return action()
    except FlattestError:
        raise
    except SystemExit as stop:
        raise FlattestError(f"{what} ended the program, by sys.exit({stop.code!r}).") from stop
    except Exception as error:
        what = f"{what} failed{_place_of(error)} with {type(error).__name__}"
        raise FlattestError(f"{what}: {said(error)}") from error


def _place_of(error: Exception) -> str:
    """The line of the user's own file that the error came from, where there is one."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if Path(f.filename).is_file() and not _is_installed(f.filename)]
    return f" at {own[-1].filename}:{own[-1].lineno}" if own else ""


def _is_installed(file: str) -> bool:
    """Whether it is flattest's, Python's or a package's."""
    ours = Path(flattest.__file__).parent, Path(sysconfig.get_path("stdlib"))
    return "site-packages" in file or any(Path(file).is_relative_to(folder) for folder in ours)
