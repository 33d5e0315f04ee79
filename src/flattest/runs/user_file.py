"""A user's Python file as a module, in this process and in those that work for it."""

import contextlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from flattest.errors import FlattestError


def imported(path: Path) -> ModuleType:
    """Run the file, which may import what lies beside it.

    What it prints goes to the error stream: the output may be JSON.
    """
    path = path.absolute()
    # A name of its own, and its folder last on the path: a json.py in it replaces no other json.
    spec = importlib.util.spec_from_file_location(f"flattest_user_file:{path.stem}", path)
    if spec is None or spec.loader is None:
        raise FlattestError(f"{path} cannot be imported as a Python file.")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    # Dataclasses look their module up while it is being executed.
    sys.modules[spec.name] = module
    with contextlib.redirect_stdout(sys.stderr):
        spec.loader.exec_module(module)
    return module


_KEPT: list[Any] = []


class Reference(NamedTuple):
    """A function in a user's file: what it makes, and so knows, every process makes for itself."""

    path: Path
    function: str

    @property
    def statement(self) -> str:
        """Python text that calls it in another process, whatever the file's name is."""
        return (
            "from pathlib import Path; from flattest.runs.user_file import Reference; "
            f"Reference(Path({str(self.path.absolute())!a}), {self.function!a}).keep()"
        )

    def keep(self) -> None:
        """Call it, and keep what it makes: a spec knows its arrays only while they are held."""
        _KEPT.append(self.made())

    def made(self) -> Any:
        """What the function returns; what it prints goes to the error stream, too."""
        function = getattr(imported(self.path), self.function)
        with contextlib.redirect_stdout(sys.stderr):
            return function()
