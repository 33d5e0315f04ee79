"""Runs on disk: an SQLite index and one folder per run.

    store/index.sqlite                   one row per run, with the lease of who works on it
    store/runs/KEY/spec.json             what was asked: schema, task, seed, engine version
    store/runs/KEY/record.json           how it went: status, times, provenance
    store/runs/KEY/series.npz            float64 series; of a running run, the series so far
    store/runs/KEY/params.safetensors    the parameters at the end
    store/runs/KEY/checkpoints/*         parameters at earlier epochs, `EPOCH.safetensors`
    store/runs/KEY/failure.txt           the traceback of a run that failed
    store/runs/KEY/scratch/              what the engine needs to resume; removed at the end

Every file is written whole or not at all, and nothing is pickled.
"""

import contextlib
import functools
import shutil
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from flattest.errors import FlattestError
from flattest.experiments.keys import run_key
from flattest.files import (
    ANOTHER_STORE,
    Arrays,
    StoreError,
    check_size,
    read_json,
    read_series,
    read_tensors,
    unwritable,
    write_bytes,
    write_json,
    write_series,
    write_tensors,
)
from flattest.runs.index import SCHEMA, Index, Row, Standing
from flattest.runs.provenance import Provenance, provenance
from flattest.training.run import Run
from flattest.training.state import ENGINE_VERSION

HEARTBEAT = 5.0  # seconds between two signs of life of a lease
TAKEN_OVER = "Another process took it over."
DONE = frozenset({"finished", "diverged", "stagnated"})


class LeaseLost(FlattestError):
    """The process was silent for so long that another may have taken its run over."""


class Spec(msgspec.Struct, frozen=True):
    """spec.json: the request whose hash is the key."""

    schema: int
    key: str
    label: str
    seed: int
    engine: int
    task: msgspec.Raw


class Record(Standing, frozen=True, kw_only=True):
    """record.json: how the run went, enough to rebuild its row of the index."""

    provenance: Provenance | None = None
    notes: dict[str, str] = {}  # what the task says of how it was done
    files: dict[str, int] = {}  # the results and their sizes in bytes


class Checkpoint(msgspec.Struct, frozen=True):
    """The parameters after `epoch` epochs."""

    epoch: int
    path: Path

    def params(self) -> Arrays:
        return read_tensors(self.path)


class StoredRun(msgspec.Struct, frozen=True):
    """A run as the store has it now.

    `status` is one of pending, running, finished, diverged, stagnated, failed; or "interrupted",
    when whoever was running it is gone, or "broken", when its files cannot be read. `sentence`
    says why. `label` is the experiment that first asked for it; others may share it.
    """

    key: str
    label: str
    seed: int
    status: str
    sentence: str
    progress: float
    step: int
    created: float
    started: float | None
    finished: float | None
    seconds: float
    host: str | None
    folder: Path

    @property
    def done(self) -> bool:
        return self.status in DONE

    def series(self) -> Arrays:
        """The float64 series, those so far if the run is not done; {} before the first."""
        path = self.folder / "series.npz"
        return read_series(path) if path.exists() or self.done else {}

    def params(self) -> Arrays | None:
        """The parameters at the end; None for a run that has none (computed, or not done)."""
        path = self.folder / "params.safetensors"
        return read_tensors(path) if path.exists() else None

    def checkpoints(self) -> list[Checkpoint]:
        """The parameters kept on the way, by epoch; other files in their folder are not ours."""
        files = (self.folder / "checkpoints").glob("*.safetensors")
        found = [Checkpoint(int(p.stem), p) for p in files if p.stem.isdecimal()]
        return sorted(found, key=lambda checkpoint: checkpoint.epoch)

    def examined(self) -> "StoredRun":
        """This run after a look into its results, "broken" if they cannot be read.

        A listing compares sizes only, and does not see bytes that rot in place.
        """
        try:
            read_results(self.folder)
        except FlattestError as error:
            return msgspec.structs.replace(self, status="broken", sentence=str(error))
        return self

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
        return msgspec.json.decode(read_spec(self.folder).task)

    def provenance(self) -> Provenance | None:
        return read_json(self.folder / "record.json", Record).provenance

    def notes(self) -> dict[str, str]:
        """What the task says of how it was done, such as the engine it used."""
        return read_json(self.folder / "record.json", Record).notes


def read_spec(folder: Path) -> Spec:
    spec = read_json(folder / "spec.json", Spec)
    if spec.schema != SCHEMA:
        raise FlattestError(
            f"The run {folder.name} has schema {spec.schema}; this flattest reads {SCHEMA}."
        )
    return spec


def opened(path: Path) -> Index:
    return Index(path) if path.exists() else Index.create(path)


class Store:
    """The runs under `root`. Any number of processes may use one store at once."""

    def __init__(self, root: Path | str, index: Index) -> None:
        self.root = Path(root)
        self.index = index
        self.adopt()

    @classmethod
    def create(cls, root: Path | str) -> Self:
        """Open the store at `root`, making it first where there is none."""
        root = Path(root)
        try:
            (root / "runs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(root, error, ANOTHER_STORE) from error
        return cls(root, opened(root / "index.sqlite"))

    @classmethod
    def open(cls, root: Path | str) -> Self:
        """Open the store at `root` to read; it must exist, and may be on a read-only disk.

        A store that has lost its index has runs, and gets a new one.
        """
        root = Path(root)
        path = root / "index.sqlite"
        if not path.exists() and not any(root.glob("runs/*/spec.json")):
            raise StoreError(
                f"There is no store at {root}: give its folder with --store, "
                "or make one with `flattest run`."
            )
        return cls(root, opened(path))

    def folder(self, key: str) -> Path:
        return self.root / "runs" / key

    def adopt(self) -> None:
        """Index the run folders that are not: copied here, or left by an index that was deleted."""
        if self.index.writable:
            for folder in self.strangers(self.index.rows()):
                if readable(folder):
                    self.index.add(row_of(folder))

    def strangers(self, rows: list[Row]) -> list[Path]:
        """The run folders that are in none of the rows."""
        known = {row.key for row in rows}
        specs = (self.root / "runs").glob("*/spec.json")
        return [spec.parent for spec in specs if spec.parent.name not in known]

    def _rows(self) -> list[Row]:
        """The index, and a row for each folder that is not in it."""
        rows = self.index.rows()
        return rows + [row_of(folder) for folder in self.strangers(rows)]

    def runs(self) -> list[StoredRun]:
        """Every run, broken ones marked, by label and seed."""
        return [self.stored(row) for row in self._rows()]

    def run(self, key: str) -> StoredRun | None:
        row = self.index.row(key)
        return None if row is None else self.stored(row)

    def find(self, prefix: str) -> StoredRun:
        """The one run whose key begins with `prefix`."""
        found = [row for row in self._rows() if row.key.startswith(prefix)]
        if len(found) != 1:
            few = ", ".join(row.key for row in found[:5])
            raise FlattestError(
                f"{len(found)} runs have a key that begins with {prefix!r}{': ' if few else ''}"
                f"{few}; `flattest status` lists them all."
            )
        return self.stored(found[0])

    def stored(self, row: Row) -> StoredRun:
        status, sentence = row.status, row.sentence
        if status == "running" and not row.held:
            status, sentence = "interrupted", "Whoever ran it is gone; running it again resumes it."
        try:
            check(self.folder(row.key), row.status)
        except FlattestError as error:
            status, sentence = "broken", str(error)
        shown = msgspec.structs.replace(row, status=status, sentence=sentence)
        names = set(StoredRun.__struct_fields__) & set(Row.__struct_fields__)
        return StoredRun(
            **{name: getattr(shown, name) for name in names}, folder=self.folder(row.key)
        )

    def add(self, task: Any, seed: int, label: str) -> str:
        """Ask for a run; returns its key. Asking twice is asking once."""
        key = run_key(task, seed)
        folder, row = self.folder(key), self.index.row(key)
        if row is None or not readable(folder):
            raw = msgspec.Raw(msgspec.json.encode(task))
            spec = Spec(SCHEMA, key, label, seed, ENGINE_VERSION, raw)
            write_json(folder / "spec.json", spec)
            self.index.add(Row(key=key, label=label, seed=seed, created=time.time()))
        return key

    def lease(self, key: str) -> "Lease | None":
        """The right to work on a run, for this process alone; None if another has it or it is done.

        A run that another began and left, that failed, or whose results are broken is given.
        """
        read_spec(self.folder(key))
        owner = uuid.uuid4().hex
        if not self.index.lease(key, owner):
            return None
        lease = Lease(self, key, owner)
        if lease.record.status in DONE:
            try:
                whole = intact(self.folder(key), lease.record.status)
            except StoreError:
                lease.release(lease.record)
                raise
            if whole:
                # Done, though perhaps killed before it could tell the index.
                lease.release(lease.record)
                return None
            lease.record = Record()
        return lease


class Lease:
    """A run in the hands of this process; a context manager that shows signs of life."""

    def __init__(self, store: Store, key: str, owner: str) -> None:
        self.store, self.key, self.owner = store, key, owner
        self.folder = store.folder(key)
        self.scratch = self.folder / "scratch"
        self.checkpoints = self.folder / "checkpoints"
        self.record = read_record(self.folder)
        self.before, self.began = 0.0, time.time()
        self.lost: str | None = None
        self._over = threading.Event()
        self._pulse = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self.before = self.record.seconds
        self.record = msgspec.structs.replace(
            self.record,
            status="running",
            sentence="",
            created=self.record.created or self.began,
            started=self.record.started or self.began,
            finished=None,
            provenance=provenance(),
        )
        write_json(self.folder / "record.json", self.record)
        self._change(status="running", sentence="", started=self.record.started, finished=None)
        self._pulse.start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        """An exception makes the run failed, except an interruption, after which it resumes.

        A run that another process has taken over meanwhile is left to that.
        """
        self._over.set()
        self._pulse.join()
        if self.record.status != "running" or self.lost is not None:
            return
        if not self.store.index.change(self.key, self.owner, heartbeat=time.time()):
            return
        if error is None or isinstance(error, Exception):
            trace = "".join(traceback.format_exception(error))
            write_bytes(self.folder / "failure.txt", trace.encode())
            sentence = " ".join(str(error or "It ended without a result.").split())
            self._conclude("failed", sentence)
        else:
            self.release(self.record)

    def progress(self, fraction: float, step: int, series: Mapping[str, Any]) -> None:
        """Show the series so far to whoever looks at the store.

        The time so far counts from now on, also where the run is interrupted and resumed.
        """
        seconds = self._seconds()
        self._change(progress=fraction, step=step, seconds=seconds)
        write_series(self.folder / "series.npz", series)
        self.record = msgspec.structs.replace(
            self.record, progress=fraction, step=step, seconds=seconds
        )
        write_json(self.folder / "record.json", self.record)

    def finish(self, run: Run) -> None:
        """Persist what the seed produced. The record is written last: with it the run is done."""
        if run.status not in DONE:
            ends = ", ".join(sorted(DONE))
            raise FlattestError(f"A run ends {ends} or failed, not {run.status!r}.")
        self._change(step=run.step)
        results = [self.folder / "series.npz"]
        write_series(results[0], run.series)
        if run.params is not None:
            results.append(self.folder / "params.safetensors")
            write_tensors(results[1], run.params)
        files = {path.name: path.stat().st_size for path in results}
        self.record = msgspec.structs.replace(
            self.record, progress=1.0, step=run.step, files=files, notes=_notes(run)
        )
        self._conclude(run.status, run.sentence)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def release(self, record: Record) -> None:
        """Give the lease back, leaving the index as `record` says."""
        fields = columns(record)
        self.store.index.change(self.key, self.owner, **fields, owner=None, heartbeat=None)

    def _seconds(self) -> float:
        """The time of this stretch of work and of the earlier ones, up to their last progress."""
        return self.before + time.time() - self.began

    def _conclude(self, status: str, sentence: str) -> None:
        self.record = msgspec.structs.replace(
            self.record,
            status=status,
            sentence=sentence,
            finished=time.time(),
            seconds=self._seconds(),
        )
        write_json(self.folder / "record.json", self.record)
        self.release(self.record)

    def _change(self, **fields: Any) -> None:
        if self.lost is None and not self.store.index.change(self.key, self.owner, **fields):
            self.lost = TAKEN_OVER
        if self.lost is not None:
            raise LeaseLost(f"The run {self.key} is no longer ours: {self.lost}")

    def _beat(self) -> None:
        while self.lost is None and not self._over.wait(HEARTBEAT):
            # A fault that lasts is reported by the next progress; one that passes is none.
            with contextlib.suppress(StoreError):
                if not self.store.index.change(self.key, self.owner, heartbeat=time.time()):
                    self.lost = TAKEN_OVER


def _notes(run: Run) -> dict[str, str]:
    """What the record says of how a run was done."""
    named = {"backend": run.backend, "why not the fused engine": run.reason}
    return {name: text for name, text in named.items() if text} | {
        f"note {i}": note for i, note in enumerate(run.notes, 1)
    }


def read_record(folder: Path) -> Record:
    """The run's record; that of a run nobody began if it is missing or cannot be read."""
    try:
        return read_json(folder / "record.json", Record)
    except FlattestError:
        return Record()


def row_of(folder: Path) -> Row:
    """The row of the index for a folder; a folder that cannot be read has one too."""
    if not readable(folder):
        return Row(key=folder.name, label="?", seed=0)
    spec = read_json(folder / "spec.json", Spec)
    return Row(key=folder.name, label=spec.label, seed=spec.seed, **columns(read_record(folder)))


def columns(record: Record) -> dict[str, Any]:
    """What the index keeps of a record."""
    return {name: getattr(record, name) for name in Standing.__struct_fields__}


def readable(folder: Path) -> bool:
    """Whether the folder says what was asked, be it in a newer schema."""
    try:
        read_json(folder / "spec.json", Spec)
    except FlattestError:
        return False
    return True


def check(folder: Path, status: str) -> None:
    """Refuse a run whose files do not match its status."""
    read_spec(folder)
    if status in DONE:
        for name, size in read_json(folder / "record.json", Record).files.items():
            check_size(folder / name, size)


def read_results(folder: Path) -> None:
    """Refuse results that cannot be read to their end; those that are missing are not ours."""
    for name, read in (("series.npz", read_series), ("params.safetensors", read_tensors)):
        if (folder / name).exists():
            at = (folder / name).stat()
            _read_whole(folder / name, read, at.st_mtime_ns, at.st_size)


@functools.lru_cache(maxsize=100_000)
def _read_whole(path: Path, read: Callable[[Path], Arrays], changed: int, size: int) -> None:
    """Read a file, once for each version of it: a server asks again and again."""
    read(path)


def intact(folder: Path, status: str) -> bool:
    """Whether the results of a run that is done are there and can be read.

    Of results that we have no right to read nobody can say, and to compute them again is no remedy.
    """
    try:
        check(folder, status)
        read_results(folder)
    except StoreError:
        raise
    except FlattestError:
        return False
    return True
