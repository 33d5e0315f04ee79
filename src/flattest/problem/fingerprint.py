"""What a user's own code computes, as a hash: its source, and the values that it reads.

Two functions with the same source differ where a constant of their module or closure does; a file
that was moved is the same. A class may say by `__fingerprint__` what its objects are known by, in
place of all their attributes. Code of installed packages is known by its name and by the values in
its closures, which is where optax keeps a learning rate.
"""

import functools
import hashlib
import inspect
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from flattest.errors import FlattestError

# What was met, by its id, and kept alive, so that no other thing gets the same id.
Seen = dict[int, Any]
_PACKAGES = {"site-packages", "dist-packages"}


def fingerprint(thing: Any) -> str:
    """The hash of a function, class or object, of all that it refers to."""
    text = "\n".join(_parts(thing, {}))
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


# What specs refer to by its fingerprint, where this process has made it.
_MADE: dict[str, Any] = {}


def remember(made: Any) -> str:
    """The fingerprint by which `recall` gives it back."""
    source = fingerprint(made)
    _MADE[source] = made
    return source


def recall(source: str, what: str) -> Any:
    """What has this fingerprint; a spec that was read from a file may have come without it."""
    if source not in _MADE:
        raise FlattestError(f"The {what} {source} is not here: load the file that makes it first.")
    return _MADE[source]


def _parts(thing: Any, seen: Seen) -> Iterator[str]:
    """Lines that are the same for things that compute the same, and in the same order."""
    if thing is None or isinstance(thing, bool | int | float | complex | str | bytes):
        yield repr(thing)
        return
    if id(thing) in seen:
        yield "again"
        return
    seen[id(thing)] = thing
    if isinstance(thing, types.ModuleType):
        yield from _module(thing)
    elif isinstance(thing, types.FunctionType):
        yield from _function(thing, seen)
    elif isinstance(thing, type):
        yield from _class(thing, seen)
    elif isinstance(thing, Mapping):
        for key in sorted(thing, key=repr):
            yield f"key {key!r}"
            yield from _parts(thing[key], seen)
    elif isinstance(thing, list | tuple | set | frozenset):
        yield f"{type(thing).__qualname__} {len(thing)}"
        for item in sorted(thing, key=repr) if isinstance(thing, set | frozenset) else thing:
            yield from _parts(item, seen)
    else:
        yield from _object(thing, seen)


def _module(module: types.ModuleType) -> Iterator[str]:
    yield f"module {module.__name__.rpartition('.')[2]}"
    if _is_own(module):
        yield Path(str(module.__file__)).read_text(encoding="utf-8")


def _function(function: types.FunctionType, seen: Seen) -> Iterator[str]:
    reads = inspect.getclosurevars(function)
    if not _is_own(sys.modules.get(function.__module__)):
        yield f"{function.__module__}.{function.__qualname__}"
        yield from _parts(dict(reads.nonlocals), seen)
        return
    yield _source(function)
    for value in (function.__defaults__, function.__kwdefaults__, reads.nonlocals, reads.globals):
        yield from _parts(value, seen)


def _class(kind: type, seen: Seen) -> Iterator[str]:
    if not _is_own(sys.modules.get(kind.__module__)):
        yield f"{kind.__module__}.{kind.__qualname__}"
        return
    yield _source(kind)
    yield from _parts(list(kind.__bases__), seen)
    for name, value in sorted(vars(kind).items()):
        if isinstance(value, staticmethod | classmethod | property | types.FunctionType):
            yield name
            yield from _parts(_plain_function(value), seen)


def _plain_function(value: Any) -> Any:
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", value)


def _object(thing: Any, seen: Seen) -> Iterator[str]:
    if hasattr(type(thing), "__fingerprint__"):
        yield from _parts([type(thing), thing.__fingerprint__()], seen)
    elif isinstance(thing, functools.partial):
        yield from _parts([thing.func, thing.args, thing.keywords], seen)
    elif isinstance(thing, types.MethodType):
        yield from _parts([thing.__func__, thing.__self__], seen)
    elif hasattr(thing, "__wrapped__"):
        yield from _parts(thing.__wrapped__, seen)
    elif hasattr(thing, "__array__"):
        array = np.asarray(thing)
        yield f"array {array.shape} {array.dtype} {hashlib.blake2b(array.tobytes()).hexdigest()}"
    elif isinstance(thing, msgspec.Struct):
        yield from _parts(type(thing), seen)
        yield from _parts({name: getattr(thing, name) for name in thing.__struct_fields__}, seen)
    else:
        yield from _parts(type(thing), seen)
        yield from _parts(getattr(thing, "__dict__", {}), seen)


def _source(thing: Any) -> str:
    """The source without its place and indentation; of code that has none, its compiled form."""
    try:
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError):
        code = getattr(thing, "__code__", None)
        return f"{thing.__qualname__} {code.co_code.hex() + repr(code.co_consts) if code else ''}"


def _is_own(module: types.ModuleType | None) -> bool:
    """Whether it is the user's: not Python's, not an installed package's, not flattest's."""
    if module is None:
        return False
    top, file = module.__name__.partition(".")[0], getattr(module, "__file__", None)
    if top == "flattest" or top in sys.stdlib_module_names - {"__main__"}:
        return False
    return top == "__main__" if file is None else not _PACKAGES & set(Path(file).parts)
