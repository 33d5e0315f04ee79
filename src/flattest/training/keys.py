"""The key of a run: a hash of all that affects its result. It stays as it is when specs grow.

`fields.json` lists the fields that every kind of spec had when keys took this form, by its tag or
the name of its class. These are always hashed, so that a changed default is a changed key. A field
that was added since is left out while it has the value that its absence means: runs stored before
keep their keys. That value is recorded under "added" in the commit that adds the field (a test asks
for the line) and never changes, whatever becomes of the default.

Kinds that are not listed, a user's own, are hashed with all their fields.
"""

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from flattest.problem.randomness import checked_seed
from flattest.training.state import ENGINE_VERSION, NEW_NUMBERS, SAME_NUMBERS


class Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """fields.json: names by kind, and for those added since what their absence means."""

    listed: dict[str, tuple[str, ...]]
    added: dict[str, dict[str, Any]]


FIELDS = msgspec.json.decode(Path(__file__).with_name("fields.json").read_bytes(), type=Fields)


def run_key(task: Any, seed: int, engine: int = ENGINE_VERSION) -> str:
    """The hash of everything that affects a run's result: task, seed and the engine's version."""
    return _key(canonical_json(task), seed, engine)


def run_keys(task: Any, seed: int) -> dict[str, int]:
    """The keys under which a store may have a run, with the engine's version, the present first."""
    return keys_by_seed(task)(seed)


def keys_by_seed(task: Any) -> Callable[[int], dict[str, int]]:
    """`run_keys` of a task, which is written out once for all seeds."""
    written = canonical_json(task)
    engines = _engines(written)
    return lambda seed: {_key(written, seed, engine): engine for engine in engines}


def key_matcher(task: Any) -> Callable[[str, int], bool]:
    """Whether a run's key is one of the task's with this seed; the present engine's is tried first,
    which most runs have."""
    written = canonical_json(task)
    engines = _engines(written)
    return lambda key, seed: any(_key(written, seed, engine) == key for engine in engines)


def _engines(task: bytes) -> tuple[int, ...]:
    """The versions of the engine whose numbers of a task are those of this one, given its canonical
    JSON, the present one first."""
    since = [v for v, marks in NEW_NUMBERS.items() if any(mark in task for mark in marks)]
    return tuple(v for v in (ENGINE_VERSION, *SAME_NUMBERS) if v >= max(since, default=0))


def _key(task: bytes, seed: int, engine: int) -> str:
    """The hash of the canonical JSON of engine, seed and task, given the task's."""
    return _hash(b'{"engine":%d,"seed":%d,"task":%b}' % (engine, checked_seed(seed), task))


def digest(value: Any) -> str:
    """The hash of a value's canonical JSON."""
    return _hash(canonical_json(value))


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=10).hexdigest()


def canonical_json(value: Any) -> bytes:
    """The same for equal values: fields in order of their names, numbers by value."""
    return msgspec.json.encode(_plain(value), order="sorted")


def _plain(value: Any) -> Any:
    """A value as JSON has it; 1 and 1.0 are one number, and JSON has no NaN or infinity."""
    if isinstance(value, msgspec.Struct):
        return _plain(_hashed_fields(value))
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if value is None or isinstance(value, str | int | float):
        return value
    return _plain(msgspec.to_builtins(value))


def _hashed_fields(spec: msgspec.Struct) -> dict[str, Any]:
    config, absent = spec.__struct_config__, meaning_of_absence(type(spec))
    names = zip(spec.__struct_encode_fields__, spec.__struct_fields__, strict=True)
    values = {encoded: getattr(spec, name) for encoded, name in names}
    hashed = {
        name: value
        for name, value in values.items()
        if name not in absent or canonical_json(value) != canonical_json(absent[name])
    }
    return hashed if config.tag is None else hashed | {str(config.tag_field): config.tag}


def meaning_of_absence(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The value of each field that was added to a listed kind, as it was before there was one."""
    listed = FIELDS.listed.get(kind_name(kind), kind.__struct_encode_fields__)
    if set(kind.__struct_encode_fields__) <= set(listed) or not _is_ours(kind):
        return {}
    defaults = {
        field.encode_name: _default(field)
        for field in msgspec.structs.fields(kind)
        if field.encode_name not in listed and not field.required
    }
    return defaults | FIELDS.added.get(kind_name(kind), {})


def kind_name(kind: type[msgspec.Struct]) -> str:
    """What `fields.json` calls it."""
    return str(kind.__struct_config__.tag or kind.__name__)


def _is_ours(kind: type) -> bool:
    """Whether it is a spec of flattest, or made from one, and not a namesake."""
    return any(ancestor.__module__.startswith("flattest.") for ancestor in kind.__mro__)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default_factory() if field.default is msgspec.NODEFAULT else field.default
