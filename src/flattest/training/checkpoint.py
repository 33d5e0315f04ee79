"""Checkpoints: one self-verifying file each, written atomically, the last two kept.

A checkpoint is a safetensors file that holds the parameters and the series so far, and in its
metadata, as JSON, where the run stands and of which run it is. Its name is
`SEQUENCE-CHECKSUM.safetensors`: a truncated or altered file no longer matches its name.
"""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from flattest.errors import FlattestError
from flattest.files import (
    Arrays,
    digest as checksum,
    read_bytes,
    tensor_bytes,
    tensors_of,
    write_bytes,
)
from flattest.problem.data import Dataset
from flattest.problem.models import Model, Params, predict_by_jax
from flattest.training.algorithms import Phase
from flattest.training.flows import Flow
from flattest.training.keys import digest
from flattest.training.state import ENGINE_VERSION, State

_SUFFIX = ".safetensors"
_NAME = re.compile(rf"[0-9]+-[0-9a-f]+{re.escape(_SUFFIX)}")
_KEPT = 2
_VERSION = "engine version"
_LASTING = ("data", "initial parameters")  # what every version writes alike
_DIGITS = 8  # of a network's outputs, which kinds of processors round differently
_FOLDERS = ("params", "memory", "events", "series")
_COUNTERS = ("epoch", "step", "phase", "phase_epoch", "changed", "halt", "tally")


# What decides a run, by name, each as the words that a checkpoint may have for it; those that are
# written first.
Identity = dict[str, tuple[str, ...]]


@dataclass
class Checkpoints:
    """The checkpoints of one run in `folder`, due every `every` seconds."""

    folder: Path
    identity: Identity
    every: float = 10.0
    notes: list[str] = field(default_factory=list)
    _last: float = field(default_factory=time.monotonic)

    def load(self) -> tuple[State, Arrays, float] | None:
        """State, series and seconds of the newest checkpoint that can be gone on from; those passed
        over are in `notes`."""
        for path in reversed(self._files()):
            try:
                return self._read(path)
            except _Unusable as error:
                self.notes.append(f"Checkpoint {path.name} is passed over: {error}.")
        return None

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._last >= self.every

    def save(self, state: State, series: Arrays, seconds: float) -> None:
        """Write a checkpoint, then remove all but it and the one before."""
        files = self._files()
        sequence = int(files[-1].name.split("-")[0]) + 1 if files else 0
        data = self._encode(state, series, seconds)
        write_bytes(self.folder / f"{sequence:06d}-{checksum(data)}{_SUFFIX}", data)
        sound = [path for path in files if _is_sound(path)]
        superseded, drafts = set(files) - set(sound[1 - _KEPT :]), self.folder.glob(".*.tmp")
        for path in (*superseded, *drafts):
            path.unlink(missing_ok=True)
        self._last = time.monotonic()

    def _files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*") if _NAME.fullmatch(path.name))

    def _encode(self, state: State, series: Arrays, seconds: float) -> bytes:
        counters = {name: getattr(state, name) for name in _COUNTERS}
        counters["tally"] = dict(state.tally)
        written = {name: words[0] for name, words in self.identity.items()}
        standing = {"identity": written, "counters": counters, "seconds": seconds}
        parts = state.params, state.memory, state.events, series
        arrays = {
            f"{folder}/{name}": value
            for folder, part in zip(_FOLDERS, parts, strict=True)
            for name, value in part.items()
        }
        return tensor_bytes(arrays, standing=json.dumps(standing))

    def _read(self, path: Path) -> tuple[State, Arrays, float]:
        try:
            data = read_bytes(path)
        except OSError as error:
            raise _Unusable(error.strerror or str(error)) from error
        if not _matches(path, data):
            raise _Unusable("it is damaged (its checksum does not match)")
        arrays, metadata = tensors_of(data)
        standing = json.loads(metadata["standing"])
        written = standing["identity"]
        current = written.get(_VERSION) in self.identity[_VERSION]
        compared = self.identity if current else _LASTING
        differing = [name for name in compared if written.get(name) not in self.identity[name]]
        if differing:
            raise FlattestError(
                f"The checkpoints in {self.folder} belong to another run, which differs in "
                f"{', '.join(differing)}; choose another folder or delete this one."
            )
        if not current:
            raise _Unusable(f"version {written.get(_VERSION)} of the engine wrote it")
        params, memory, events, series = (_of_folder(f"{folder}/", arrays) for folder in _FOLDERS)
        state = State(params, memory=memory, events=events, **standing["counters"])
        return state, series, standing["seconds"]


class _Unusable(Exception):
    """A checkpoint that is not what was written, or not by this engine."""


def identity(
    model: Model, data: Dataset, phases: Sequence[Phase | Flow], params: Params, **settings: Any
) -> Identity:
    """What decides a run's bits, each as a hash.

    A model is known by its spec, where it has one, and by its outputs at the start: a name does not
    say what a user's own network or activation computes. They are rounded, so that a run may go on
    on another kind of processor; checkpoints of before have them to the bit. Specs count as they do
    for a run's key.
    """
    spec = digest(model) if isinstance(model, msgspec.Struct) else type(model).__name__
    outputs = predict_by_jax(model, params, data.x, data.x)
    return {
        "model": tuple(f"{spec} {_checksum_of(f)}" for f in (_rounded(outputs), outputs)),
        _VERSION: (str(ENGINE_VERSION),),
        "data": (_checksum_of(data.x, data.y),),
        "phases": (digest(phases),),
        "initial parameters": (_checksum_of(*params.values()),),
        **{name: (digest(value),) for name, value in settings.items()},
    }


def _rounded(values: np.ndarray) -> np.ndarray:
    """To so many digits of the largest of them; one zero, since rounding makes two."""
    scale = np.max(np.abs(values), initial=0.0) or 1.0
    with np.errstate(invalid="ignore"):
        return np.round(values / scale, _DIGITS) + 0.0


def _of_folder(folder: str, arrays: Arrays) -> Arrays:
    """The arrays whose names begin with `folder`, by the rest of their names."""
    return {name.removeprefix(folder): arrays[name] for name in arrays if name.startswith(folder)}


def _is_sound(path: Path) -> bool:
    try:
        return _matches(path, read_bytes(path))
    except OSError:
        return False


def _matches(path: Path, data: bytes) -> bool:
    return path.name.removesuffix(_SUFFIX).split("-")[1] == checksum(data)


def _checksum_of(*arrays: Any) -> str:
    parts = [np.ascontiguousarray(array) for array in arrays]
    return checksum(b"".join(f"{a.shape}{a.dtype}".encode() + a.tobytes() for a in parts))
