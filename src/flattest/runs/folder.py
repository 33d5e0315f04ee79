"""The folder of one run: what its files say, and whether they can be read.

    spec.json             what was asked: schema, task, seed, engine version
    record.json           how it went: status, times, provenance
    series.npz            float64 series; of a running run, the series so far
    params.safetensors    the parameters at the end
    checkpoints/*         parameters at earlier epochs, `EPOCH.safetensors`
    failure.txt           the traceback of a run that failed
    scratch/              what the engine needs to resume; removed at the end

Every file is written whole or not at all, and nothing is pickled.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from flattest.errors import FlattestError
from flattest.files import Arrays, check_size, read_json, read_series, read_tensors
from flattest.runs.index import SCHEMA, Row, Standing
from flattest.runs.provenance import Provenance
from flattest.training.run import Run

DONE = frozenset({"finished", "diverged", "stagnated"})


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

    @property
    def standing(self) -> dict[str, Any]:
        """What the index keeps of it, by column."""
        return {name: getattr(self, name) for name in Standing.__struct_fields__}


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
        return read_series(path) if path.exists() or self.done else {}

    def params(self) -> Arrays | None:
        """The parameters at the end; None for a run that has none (computed, or not done)."""
        path = self.folder / "params.safetensors"
        return read_tensors(path)[0] if path.exists() else None

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


def stored_run(folder: Path, row: Row) -> StoredRun:
    """The run of a row of the index, after a look at the sizes of its files."""
    shared = set(StoredRun.__struct_fields__) & set(Row.__struct_fields__)
    known = {name: getattr(row, name) for name in shared}
    if row.status == "running" and not row.held:
        sentence = "Its process is gone; running it again resumes it."
        known |= {"status": "interrupted", "sentence": sentence}
    try:
        check(folder, row.status)
    except FlattestError as error:
        known |= {"status": "broken", "sentence": str(error)}
    return StoredRun(**known, folder=folder)


def read_spec(folder: Path) -> Spec:
    spec = read_json(folder / "spec.json", Spec)
    if spec.schema != SCHEMA:
        raise FlattestError(
            f"The run {folder.name} has schema {spec.schema}; this flattest reads {SCHEMA}."
        )
    return spec


def read_record(folder: Path) -> Record:
    """The run's record; that of a run nobody began if it is missing or cannot be read."""
    try:
        return read_json(folder / "record.json", Record)
    except FlattestError:
        return Record()


def row_of(folder: Path) -> Row:
    """The row of the index for a folder; a folder that cannot be read has one too."""
    spec = asked(folder)
    if spec is None:
        return Row(key=folder.name, label="?", seed=0)
    return Row(key=folder.name, label=spec.label, seed=spec.seed, **read_record(folder).standing)


def asked(folder: Path) -> Spec | None:
    """What the folder says was asked, be it in a newer schema; None if that cannot be read."""
    try:
        return read_json(folder / "spec.json", Spec)
    except FlattestError:
        return None


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
def _read_whole(path: Path, read: Callable[[Path], Any], changed: int, size: int) -> None:
    """Read a file, once for each version of it: a server asks again and again."""
    read(path)
