"""A function from a user's Python file, named FILE.py:FUNCTION."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flattest.errors import FlattestError
from flattest.runs.user_file import imported


def file_of(reference: str) -> Path:
    return Path(reference.rpartition(":")[0])


def load(reference: str) -> Callable[..., Any]:
    """The function that `reference` names; what the file raises is said in one sentence."""
    path, name = file_of(reference), reference.rpartition(":")[2]
    if path.suffix != ".py" or not name:
        raise FlattestError(f"Say FILE.py:FUNCTION, as in my_lab.py:setup, not {reference!r}.")
    if not path.is_file():
        raise FlattestError(f"There is no file {path}.")
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
    except Exception as error:
        raise FlattestError(f"{what} failed with {type(error).__name__}: {error}") from error
