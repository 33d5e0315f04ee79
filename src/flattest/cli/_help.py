"""What `--help` shows, optional arguments as such, and what is said of arguments that are wrong."""

import contextlib
import dataclasses
import functools
import inspect
import io
import re
import shutil
import sys
import textwrap
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TextIO, Union, get_args, get_origin

import tyro

from flattest.errors import FlattestError

NAMES = {int: "INT", float: "FLOAT", str: "TEXT"}
SAYS_NOTHING = ("None", "False", "")
WIDTH = 100
BOXES, ASCII = "│╭╰╮╯─", "|++++-"


class Heard(io.StringIO):
    """Keeps what is meant for another stream: coloured where that one is a terminal, and in boxes,
    which tyro draws for this spelling of the encoding alone."""

    encoding = "utf-8"

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.isatty = stream.isatty  # type: ignore[method-assign]


def parsed(name: str, command: Callable[..., Any], arguments: list[str]) -> Callable[[], Any]:
    """The command with its arguments, to be called. `--help` is printed and ends the program;
    arguments that do not fit are refused in a sentence."""
    heard = Heard(sys.stdout)
    try:
        with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
            return tyro.cli(
                told(command),
                prog=f"flattest {name}",
                description=description(sys.modules[command.__module__].__doc__ or ""),
                args=arguments,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as end:
        if end.code:
            raise FlattestError(refusal(name, heard.getvalue())) from None
        sys.stdout.write(drawable(wrapped(heard.getvalue()), sys.stdout.encoding or "utf-8"))
        raise


def wrapped(text: str) -> str:
    """Help with its paragraphs broken to the terminal's width; boxes and examples are as wide as
    they are."""
    width = min(WIDTH, shutil.get_terminal_size().columns)
    lines = text.splitlines()
    return "".join(
        (line if line[:1] in (" ", "\033", *BOXES) else textwrap.fill(line, width)) + "\n"
        for line in lines
    )


def drawable(text: str, encoding: str) -> str:
    """The text with its boxes in signs that the encoding has."""
    try:
        BOXES.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(str.maketrans(BOXES, ASCII))
    return text


def refusal(name: str, box: str) -> str:
    """What is wrong with the arguments, from the box that tyro draws around it, in a sentence."""
    *parts, _ = _parts(box)  # the last one says where help is
    wrong = " ".join(line.strip() for line in parts[0])
    named = [line.strip() for part in parts for line in part if re.match(r" {4}\S", line)]
    return f"{_sentence(name, wrong, named)}; `flattest {name} --help` shows what it takes."


def _parts(box: str) -> list[list[str]]:
    """The lines of a box between its rules."""
    plain = re.sub("\033\\[[0-9;]*m", "", box)
    lines = [line.strip("│")[1:].rstrip() for line in plain.splitlines()[1:-1]]
    parts: list[list[str]] = [[]]
    for line in lines:
        if line and not line.strip("─"):
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _sentence(name: str, wrong: str, named: Sequence[str]) -> str:
    """`named` are the arguments that the box shows, as they are shown."""
    if wrong.startswith("Missing from "):
        return f"`flattest {name}` needs {' and '.join(named)}"
    if unknown := re.match(r"Unrecognized options: (.*)", wrong):
        near = " or ".join(line.split()[0] for line in named)
        return f"`flattest {name}` does not take {unknown[1]}" + (
            f"; perhaps {near}" if near else ""
        )
    if unfit := re.match(r"Error parsing \S+: .*'(.*)'", wrong):
        return f"{named[0]} cannot be {unfit[1]!r}"
    if choice := re.match(r"invalid choice '(.*)' for argument '(.*)'\. Expected.*\((.*)\)", wrong):
        known = [word for word in re.findall(r"'(.*?)'", choice[3]) if word != "None"]
        return f"{choice[2]} is {' or '.join(known)}, not {choice[1]!r}"
    if bare := re.match(r"Missing value for argument '(.*?)'", wrong):
        return f"{bare[1]} needs a value"
    return wrong.rstrip(".")


def told(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose arguments are described as people read them; called, it has been given them
    and waits."""
    signature = inspect.signature(command)
    parameters = [p.replace(annotation=_annotation(p)) for p in signature.parameters.values()]

    def called(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return functools.partial(command, *args, **kwargs)

    called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    called.__module__ = command.__module__
    return called


def description(text: str) -> str:
    """A command's docstring, each paragraph on one line: tyro joins lines, but not before a sign.
    It puts an empty line of its own before indented ones."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", text.replace("Examples:\n\n", "Examples:\n"))


def _annotation(parameter: inspect.Parameter) -> Any:
    kind, *notes = get_args(parameter.annotation)
    shown = [_described(note, kind, notes, parameter) for note in notes]
    return Annotated[(kind, *shown)]


def _described(note: Any, kind: Any, notes: list[Any], parameter: inspect.Parameter) -> Any:
    if not hasattr(note, "help_behavior_hint"):
        return note
    name, needed = note.metavar or _name(kind), parameter.default is inspect.Parameter.empty
    if tyro.conf.Positional in notes and get_origin(kind) is tuple:
        name = f"{name} [{name} ...]" if needed else f"[{name} ...]"
    elif tyro.conf.Positional in notes and not needed:
        name = f"[{name}]"
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
