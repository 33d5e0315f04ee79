"""The key of a run: a hash of all that affects its result."""

import hashlib
import math
from typing import Any

import msgspec

from flattest.training.state import ENGINE_VERSION


def run_key(task: Any, seed: int) -> str:
    """The hash of everything that affects a run's result: the task with all its fields, the seed
    and the engine's version.

    Fields at their default are hashed too, so that a changed default is a changed key.
    """
    return digest({"task": task, "seed": seed, "engine": ENGINE_VERSION})


def digest(value: Any) -> str:
    """The hash of a value's canonical JSON: fields in order of their names, numbers by value."""
    data = msgspec.json.encode(canonical(msgspec.to_builtins(value)), order="sorted")
    return hashlib.blake2b(data, digest_size=10).hexdigest()


def canonical(value: Any) -> Any:
    """The same for equal values: 1 and 1.0 are one number, and JSON has no NaN or infinity."""
    if isinstance(value, dict):
        return {name: canonical(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
