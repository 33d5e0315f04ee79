"""The folder of one run: what its files say, and whether they can be read.

    spec.json             what was asked: schema, task, seed, engine version
    record.json           how it went: status, times, provenance
    series.npz            float64 series; of a running run, the series so far
    params.safetensors    the parameters at the end
    checkpoints/*         parameters at earlier epochs, `EPOCH.safetensors`
    failure.txt           the traceback of a run that failed
    scratch/              what the engine needs to resume; removed at the end

Every file is written whole or not at all, and nothing is pickled. Spec and record are sealed, and
so are parameters; the record has the digests of the results. All are verified when they are read,
but for runs of before there were digests.
"""

import contextlib
import functools
import operator
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from flattest.errors import FlattestError
from flattest.experiments.experiment import Task
from flattest.files import (
    Arrays,
    as_text,
    check_size,
    digest,
    read_sealed,
    read_series,
    read_tensors,
    unreadable,
)
from flattest.runs.index import SCHEMA, Count, Row, Standing
from flattest.runs.provenance import Provenance
from flattest.training.keys import run_key
from flattest.training.run import Run

DONE = frozenset({"finished", "diverged", "stagnated"})
FILES = ("spec.json", "record.json", "series.npz", "params.safetensors")


class Spec(msgspec.Struct, frozen=True):
    """spec.json: the request whose hash is the key."""

    schema: int
    key: str
    label: str
    seed: Count
    engine: int
    task: msgspec.Raw
    seal: str = ""  # those of before there were seals have none


class Stretch(msgspec.Struct, frozen=True):
    """An earlier part of a run, up to step `until`, done on other code or another machine."""

    until: Count
    provenance: Provenance


class Record(Standing, frozen=True, kw_only=True):
    """record.json: how the run went, enough to rebuild its row of the index."""

    provenance: Provenance | None = None
    notes: dict[str, str] = {}  # what the task says of how it was done
    files: dict[str, int] = {}  # the results and their sizes in bytes
    digests: dict[str, str] = {}  # of the same
    stretches: tuple[Stretch, ...] = ()


class Checkpoint(msgspec.Struct, frozen=True):
    """The parameters after `epoch` epochs."""

    epoch: int
    path: Path

    def params(self) -> Arrays:
        return read_tensors(self.path)[0]


class StoredRun(Standing, frozen=True, kw_only=True):
    """A run as the store has it now.

    `status` is one of pending, running, finished, diverged, stagnated, failed; or "interrupted",
    when the process that ran it is gone, or "broken", when its files cannot be read. `sentence`
    says why. `label` is the experiment that first asked for it; others may share it.
    """

    key: str
    label: str
    seed: int
    host: str | None
    folder: Path

    @property
    def done(self) -> bool:
        return self.status in DONE

    def series(self) -> Arrays:
        """The float64 series, those so far if the run is not done; {} before the first."""
        path = self.folder / "series.npz"
        return read_series(path, self._digest(path)) if path.exists() or self.done else {}

    def params(self) -> Arrays | None:
        """The parameters at the end; None for a run that has none (computed, or not done)."""
        path = self.folder / "params.safetensors"
        return read_tensors(path, self._digest(path))[0] if path.exists() else None

    def _digest(self, path: Path) -> str | None:
        """What the record of a run that is done says of a result."""
        return read_record(self.folder).digests.get(path.name) if self.done else None

    def checkpoints(self) -> list[Checkpoint]:
        """The parameters kept on the way, by epoch; other files in their folder are not ours."""
        if not os.path.isdir(place := f"{self.folder}/checkpoints"):
            return []
        files = Path(place).glob("*.safetensors")
        found = [Checkpoint(int(p.stem), p) for p in files if p.stem.isdecimal()]
        return sorted(found, key=lambda checkpoint: checkpoint.epoch)

    def examined(self) -> "StoredRun":
        """This run after a look into its results, "broken" if they cannot be read.

        A listing compares sizes and times only, and does not see bytes that rot in place.
        """
        try:
            check(self.folder, self.status)
            read_results(self.folder)
        except FlattestError as error:
            return msgspec.structs.replace(self, status="broken", sentence=str(error))
        return self

    def verified(self) -> "StoredRun":
        """This run after a look into all it keeps, parameters on the way too."""
        run = self.examined()
        try:
            for checkpoint in run.checkpoints():
                checkpoint.params()
        except FlattestError as error:
            remedy = f"delete {self.folder}, and `flattest run` does it again"
            sentence = f"{str(error).removesuffix('.')}; {remedy}."
            return msgspec.structs.replace(run, status="broken", sentence=sentence)
        return run

    def run(self) -> Run:
        """What the seed produced, read back."""
        return Run(
            series=self.series(),
            params=self.params(),
            seed=self.seed,
            status=self.status,
            sentence=self.sentence,
            step=self.step,
            seconds=self.seconds,
        )

    def task(self) -> dict[str, Any]:
        """What was asked, as plain data."""
        return msgspec.json.decode(self.asked())

    def asked(self) -> bytes:
        """What was asked, as JSON."""
        return bytes(read_spec(self.folder).task)

    def provenance(self) -> Provenance | None:
        """Of the last stretch of work; `stretches` has the others."""
        return read_record(self.folder).provenance

    def stretches(self) -> tuple[Stretch, ...]:
        """What was done before on other code or another machine."""
        return read_record(self.folder).stretches

    def notes(self) -> dict[str, str]:
        """What the task says of how it was done, such as the engine it used."""
        return read_record(self.folder).notes


def stored_run(folder: Path, row: Row) -> StoredRun:
    """The run of a row of the index.

    A row whose stamp is that of the files was seen to say what they say. Otherwise the files are
    read, which are the truth; the index knows better only of a run at work.
    """
    return as_listed(folder, row if is_as_seen(folder, row) else as_read(folder, row))


def as_read(folder: Path, row: Row) -> Row:
    """The row as the files say, "broken" if they cannot be read."""
    try:
        return checked_row(folder, row)
    except FlattestError as error:
        return msgspec.structs.replace(row, status="broken", sentence=str(error), stamp=None)


def as_listed(folder: Path, row: Row) -> StoredRun:
    """The run as its row says, "interrupted" where that is at work and nobody works on it."""
    known = dict(zip(_SHARED, _shared(row), strict=True))
    if row.status == "running" and not row.held:
        sentence = "Its process is gone; running it again resumes it."
        known |= {"status": "interrupted", "sentence": sentence}
    if not row.key.isascii():
        known["key"] = as_text(row.key)
    return StoredRun(**known, folder=folder)


_SHARED = tuple(set(StoredRun.__struct_fields__) & set(Row.__struct_fields__))
_shared = operator.attrgetter(*_SHARED)


def checked_row(folder: Path, row: Row, spec: Spec | None = None) -> Row:
    """The row as the files say it must be; refused if they cannot be read. `spec` is what was read
    of the folder's own, where it was."""
    spec, record = require_own(folder, spec or asked(folder)), recorded(folder)
    row = msgspec.structs.replace(row, label=spec.label, seed=spec.seed)
    if record is not None and not row.held:
        row = msgspec.structs.replace(row, **record.standing)
    if row.status not in DONE:
        return row
    record = record or read_record(folder)
    check_sizes(folder, record)
    if row.sharpness is None and row.test_error is None:
        series = read_series(folder / "series.npz", record.digests.get("series.npz"))
        row = msgspec.structs.replace(row, **last_logged(series))
    return stamped(folder, row)


def last_logged(series: Mapping[str, Any]) -> dict[str, float | None]:
    """The last sharpness and test error, where the series have finite ones."""
    last = {name: np.ravel(series.get(name, ()))[-1:] for name in ("sharpness", "test_error")}
    return {n: float(v[0]) if v.size and np.isfinite(v[0]) else None for n, v in last.items()}


def is_as_seen(folder: Path, row: Row) -> bool:
    """Whether row and files are those that were last compared."""
    return row.stamp is not None and row.stamp == stamp(folder, row)


def stamp(folder: Path, row: Row) -> str | None:
    """Of the files as they are, by size and time, and of what the row says; None if one is missing.

    A run that has no parameters has no file for them.
    """
    place = os.fspath(folder)
    try:
        found = [_size_and_time(f"{place}/{name}") for name in FILES[:3]]
    except OSError:
        return None
    with contextlib.suppress(OSError):
        found.append(_size_and_time(f"{place}/{FILES[3]}"))
    return digest(msgspec.msgpack.encode((found, msgspec.structs.astuple(row)[:_SAID])))


# Of a row, all but who has it in hand.
_SAID = Row.__struct_fields__.index("owner")


def _size_and_time(path: str) -> tuple[int, int]:
    at = os.stat(path)
    return at.st_size, at.st_mtime_ns


def stamped(folder: Path, row: Row) -> Row:
    """The row of a run that is done, so marked that the next listing need not read its files."""
    return msgspec.structs.replace(row, stamp=stamp(folder, row))


def read_spec(folder: Path) -> Spec:
    return require_own(folder, asked(folder))


def require_own(folder: Path, spec: Spec) -> Spec:
    """What was asked, refused where it is not of this folder's run."""
    if spec.schema != SCHEMA:
        raise FlattestError(
            f"The run {folder.name} has schema {spec.schema}; this flattest reads {SCHEMA}."
        )
    if spec.key != folder.name:
        raise FlattestError(
            f"The folder {as_text(folder.name)} holds the run {spec.key}: give it that name."
        )
    if not spec.seal and key_of(spec) not in (None, spec.key):
        reason = ValueError("it is not what was asked: its key is another")
        raise unreadable(folder / "spec.json", reason)
    return spec


def key_of(spec: Spec) -> str | None:
    """The key of what was asked, computed again; None for a kind of task that is not known here."""
    kinds = {str(kind.__struct_config__.tag): kind for kind in _kinds(Task)}
    try:
        kind = kinds[msgspec.json.decode(spec.task)["type"]]
        return run_key(msgspec.json.decode(spec.task, type=kind), spec.seed, spec.engine)
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError):
        return None


def _kinds(kind: type[Task]) -> Iterator[type[Task]]:
    for heir in kind.__subclasses__():
        yield heir
        yield from _kinds(heir)


def asked(folder: Path) -> Spec:
    """What the folder says was asked, be it in a newer schema."""
    return read_sealed(folder / "spec.json", Spec)


def is_asked(folder: Path) -> bool:
    """Whether the folder says what was asked, of the run it is named after."""
    try:
        return asked(folder).key == folder.name
    except FlattestError:
        return False


def read_record(folder: Path) -> Record:
    return read_sealed(folder / "record.json", Record)


def recorded(folder: Path) -> Record | None:
    """The run's record; None for a run that nobody began."""
    return read_record(folder) if os.path.lexists(folder / "record.json") else None


def row_of(folder: Path) -> Row | None:
    """The row of the index for a folder; None for one that does not say what was asked, of the run
    it is named after."""
    try:
        spec = asked(folder)
    except FlattestError:
        return None
    if spec.key != folder.name:
        return None
    row = msgspec.structs.replace(unknown(folder), label=spec.label, seed=spec.seed)
    with contextlib.suppress(FlattestError):
        row = checked_row(folder, row, spec)
    return row


def unknown(folder: Path) -> Row:
    """A row for a folder that cannot be read."""
    return Row(key=folder.name, label="?", seed=0)


def check(folder: Path, status: str) -> None:
    """Refuse a run whose files do not match its status."""
    read_spec(folder)
    if status in DONE:
        check_sizes(folder, read_record(folder))


def check_sizes(folder: Path, record: Record) -> None:
    for name, size in record.files.items():
        check_size(folder / name, size)


def read_results(folder: Path) -> None:
    """Refuse results that cannot be read to their end; those that are missing are not ours."""
    digests = read_record(folder).digests if (folder / "record.json").exists() else {}
    for name, kind in (("series.npz", "series"), ("params.safetensors", "tensors")):
        if (folder / name).exists():
            at = (folder / name).stat()
            _read_whole(folder / name, kind, digests.get(name), at.st_mtime_ns, at.st_size)


_READERS = {"series": read_series, "tensors": read_tensors}


@functools.lru_cache(maxsize=100_000)
def _read_whole(path: Path, kind: str, stated: str | None, changed: int, size: int) -> None:
    """Read a file, once for each version of it: a server asks again and again."""
    _READERS[kind](path, stated)
