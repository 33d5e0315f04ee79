"""The lease of a run: the right of one process to work on it, kept up by signs of life."""

import contextlib
import shutil
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from flattest.errors import FlattestError
from flattest.files import (
    StoreError,
    remove_stale_drafts,
    write_bytes,
    write_sealed,
    write_series,
    write_tensors,
)
from flattest.runs.folder import DONE, Record, Stretch, last_logged, recorded, stamp
from flattest.runs.index import Index
from flattest.runs.provenance import provenance
from flattest.training.run import Run


class LeaseLost(FlattestError):
    """The process was silent for so long that another may have taken its run over."""


class Lease:
    """A run in the hands of this process; a context manager that shows a sign of life every
    `heartbeat` seconds."""

    def __init__(self, index: Index, folder: Path, owner: str, heartbeat: float) -> None:
        self.index, self.folder, self.owner = index, folder, owner
        self.key = folder.name
        self.scratch = folder / "scratch"
        self.checkpoints = folder / "checkpoints"
        self.record = record_or_new(folder)
        self.before, self.began = 0.0, time.monotonic()
        self.lost = False
        self._heartbeat, self._over = heartbeat, threading.Event()
        self._pulse = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self.before = self.record.seconds
        remove_stale_drafts(self.folder)
        self._write(
            status="running",
            sentence="",
            created=self.record.created or time.time(),
            started=self.record.started or time.time(),
            finished=None,
            provenance=provenance(),
            stretches=self._stretches(),
        )
        self._change(status="running", sentence="", started=self.record.started, finished=None)
        self._pulse.start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        """An exception makes the run failed, except an interruption, after which it resumes.

        A run that another process has taken over meanwhile is left to that.
        """
        self._over.set()
        self._pulse.join()
        if self.record.status != "running" or self.lost or not self._show_life():
            return
        if error is None or isinstance(error, Exception):
            trace = "".join(traceback.format_exception(error))
            write_bytes(self.folder / "failure.txt", trace.encode())
            sentence = str(error or "It ended without a result.")
            self._conclude(status="failed", sentence=" ".join(sentence.split()))
        else:
            self.release()

    def progress(self, fraction: float, step: int, series: Mapping[str, Any]) -> None:
        """Show the series so far to those who look at the store.

        The time so far counts from now on, also where the run is interrupted and resumed.
        """
        standing = {
            "progress": fraction,
            "step": step,
            "seconds": self._seconds(),
            **last_logged(series),
        }
        self._change(**standing)
        write_series(self.folder / "series.npz", series)
        self._write(**standing)

    def finish(self, run: Run) -> None:
        """Persist what the seed produced. The record is written last: with it the run is done."""
        if run.status not in DONE:
            raise FlattestError(
                f"A run ends {', '.join(sorted(DONE))} or failed, not {run.status!r}."
            )
        self._change(step=run.step)
        digests = {"series.npz": write_series(self.folder / "series.npz", run.series)}
        if run.params is not None:
            path = self.folder / "params.safetensors"
            digests[path.name] = write_tensors(path, run.params)
        self._conclude(
            status=run.status,
            sentence=f"{run.sentence} {self._moved()}".strip(),
            progress=1.0,
            step=run.step,
            files={name: (self.folder / name).stat().st_size for name in digests},
            digests=digests,
            **last_logged(run.series),
            notes=self.record.notes | _notes(run),
        )
        shutil.rmtree(self.scratch, ignore_errors=True)

    def release(self) -> None:
        """Give the lease back, leaving the index as the record says."""
        row = self.index.row(self.key)
        if row is not None:
            row = replace(row, **self.record.standing, stamp=None)
            mark = stamp(self.folder, row) if row.status in DONE else None
            given_back = {"owner": None, "heartbeat": None, "stamp": mark}
            self.index.change(self.key, self.owner, **row.standing, **given_back)

    def _stretches(self) -> tuple[Stretch, ...]:
        """The stretches before this one: work on the same code and machine is one with the last."""
        last, before = self.record.provenance, self.record.stretches
        if last is None or last == provenance():
            return before
        return (*before, Stretch(self.record.step, last))

    def _moved(self) -> str:
        """A sentence where the run was begun on another kind of machine: some engines' numbers
        depend on it in their last digits, which descent may make larger."""
        here = provenance()
        moved = any(s.provenance.is_of_another_kind(here) for s in self.record.stretches)
        return "It was begun on another kind of machine." if moved else ""

    def _seconds(self) -> float:
        """The time of this stretch of work and of the earlier ones, up to their last progress; no
        clock that is set back shortens it."""
        return self.before + time.monotonic() - self.began

    def _write(self, **changes: Any) -> None:
        self.record = replace(self.record, **changes)
        write_sealed(self.folder / "record.json", self.record)

    def _conclude(self, **changes: Any) -> None:
        self._write(finished=time.time(), seconds=self._seconds(), **changes)
        self.release()

    def _change(self, **fields: Any) -> None:
        self.lost = self.lost or not self.index.change(self.key, self.owner, **fields)
        if self.lost:
            raise LeaseLost(f"The run {self.key} is no longer ours: another process took it over.")

    def _show_life(self) -> bool:
        """False if another process has taken the run over."""
        return self.index.change(self.key, self.owner, heartbeat=time.time())

    def _beat(self) -> None:
        while not (self.lost or self._over.wait(self._heartbeat)):
            # A fault that lasts is reported by the next progress; one that passes does no harm.
            with contextlib.suppress(StoreError):
                if not self._show_life():
                    self.lost = True


def record_or_new(folder: Path) -> Record:
    """The run's record; where it cannot be read a new one, which says so."""
    try:
        return recorded(folder) or Record()
    except StoreError:
        raise
    except FlattestError as error:
        return Record(notes={"record": f"It was begun anew: {error}"})


def _notes(run: Run) -> dict[str, str]:
    """What the record says of how a run was done."""
    named = {"backend": run.backend, "why not the fused engine": run.reason}
    return {name: text for name, text in named.items() if text} | {
        f"note {i}": note for i, note in enumerate(run.notes, 1)
    }
