"""The one exception of the library, and other people's words within our sentences."""

import re
from collections.abc import Hashable
from difflib import get_close_matches
from typing import Any


class FlattestError(ValueError):
    """Input that cannot be worked with; the message is one sentence that says what to change."""


def unknown(kind: str, name: object, valid) -> FlattestError:
    """The error for a name that no registry holds, listing those that are valid."""
    names = sorted(valid)
    near = get_close_matches(str(name), names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return FlattestError(f"Unknown {kind} {name!r}{hint}; valid are: {', '.join(names)}.")


def require_known(kind: str, name: Any, valid) -> Any:
    """The name, refused where it is not among the valid ones."""
    if not isinstance(name, Hashable) or name not in valid:
        raise unknown(kind, name, valid)
    return name


def first_line(error: BaseException) -> str:
    """The first line of someone else's message, to be quoted within a sentence."""
    return (said(error).strip().partition("\n")[0] or type(error).__name__).rstrip(".")


def said(error: BaseException) -> str:
    """Someone else's message, whose own code may fail."""
    try:
        return str(error)
    except Exception:
        return "(its message cannot be made)"


def visible(text: str) -> str:
    """The text with signs in the place of control characters, which could command a terminal."""
    return _CONTROL.sub(lambda found: _SIGNS.get(found[0], "\ufffd"), text)


# C0 but tab and line feed, C1, and what turns the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SIGNS = {chr(code): chr(0x2400 + code) for code in range(0x20)} | {"\x7f": "\u2421"}
