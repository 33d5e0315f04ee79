"""What `--help` shows: optional arguments as such, and no default that says nothing."""

import dataclasses
import inspect
import re
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tyro

NAMES = {int: "INT", float: "FLOAT", str: "TEXT"}
SAYS_NOTHING = ("None", "False", "")


def told(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with its arguments described as people read them."""
    signature = inspect.signature(command)
    parameters = [p.replace(annotation=_annotation(p)) for p in signature.parameters.values()]

    def called(*args: Any, **kwargs: Any) -> Any:
        return command(*args, **kwargs)

    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    called.__module__ = command.__module__
    return called


def description(text: str) -> str:
    """A command's docstring, each paragraph on one line: tyro breaks them where it shows them, but
    keeps a break before a sign. It puts an empty line of its own before indented ones."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", text.replace("Examples:\n\n", "Examples:\n"))


def _annotation(parameter: inspect.Parameter) -> Any:
    kind, *notes = get_args(parameter.annotation)
    shown = [_described(note, kind, notes, parameter) for note in notes]
    return Annotated[(kind, *shown)]


def _described(note: Any, kind: Any, notes: list[Any], parameter: inspect.Parameter) -> Any:
    if not hasattr(note, "help_behavior_hint"):
        return note
    name = note.metavar or _name(kind)
    if tyro.conf.Positional in notes and get_origin(kind) is tuple:
        needed = parameter.default is inspect.Parameter.empty
        name = f"{name} [{name} ...]" if needed else f"[{name} ...]"
    return dataclasses.replace(note, metavar=name, help_behavior_hint=_hint(notes, parameter))


def _name(kind: Any) -> str | None:
    """INT for an optional integer; None where tyro's own name says it."""
    if get_origin(kind) not in (Union, types.UnionType):
        return None
    parts = [_part(part) for part in get_args(kind) if part is not type(None)]
    return "|".join(parts) if all(parts) else None


def _part(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    return NAMES.get(kind, "")


def _hint(notes: list[Any], parameter: inspect.Parameter) -> Any:
    """What follows the text of an argument: its default where it has one that says something."""
    if parameter.default is inspect.Parameter.empty:
        return "(required)"
    if tyro.conf.UseAppendAction in notes:
        return "(repeatable)"
    return lambda default: "" if default in SAYS_NOTHING else f"(default: {default})"
