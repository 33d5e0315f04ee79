"""The one exception of the library."""

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
    if name not in valid:
        raise unknown(kind, name, valid)
    return name


def first_line(error: BaseException) -> str:
    """The first line of someone else's message, to be quoted within a sentence."""
    return (str(error).strip().partition("\n")[0] or type(error).__name__).rstrip(".")
