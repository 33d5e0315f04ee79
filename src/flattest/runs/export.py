"""Runs for other tools: CSV, Parquet, TensorBoard event files."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flattest.errors import FlattestError, require_known
from flattest.files import write_bytes
from flattest.runs.folder import StoredRun

Rows = list[dict[str, Any]]
RUN_FIELDS = (
    "key",
    "label",
    "seed",
    "status",
    "sentence",
    "step",
    "seconds",
    "started",
    "finished",
)


def export(
    runs: Sequence[StoredRun], format: str, folder: Path
) -> tuple[list[Path], list[StoredRun]]:
    """Write the runs' series to `folder`; returns what was written and the broken runs left out."""
    require_known("format", format, FORMATS)
    runs = [run.examined() for run in runs]
    skipped = [run for run in runs if run.status == "broken"]
    whole = [run for run in runs if run.status != "broken"]
    if skipped and not whole:
        raise FlattestError(
            f"None of the {len(skipped)} runs can be exported: {skipped[0].sentence} "
            "`flattest run` does them again."
        )
    if not whole:
        raise FlattestError("There are no runs to export; `flattest status` lists what is there.")
    return FORMATS[format](whole, folder), skipped


def run_row(run: StoredRun) -> dict[str, Any]:
    """How a run went, what it was asked by name ("model.width") and where its series ended."""
    fields = {name: getattr(run, name) for name in RUN_FIELDS}
    return fields | flat_settings(run.task()) | final_numbers(run)


def flat_settings(value: Any, name: str = "") -> dict[str, Any]:
    """Nested settings as one row: "phases[0].lr"; what is unset (None) is left out."""
    if isinstance(value, dict):
        entries = {f"{name}.{key}" if name else str(key): item for key, item in value.items()}
    elif isinstance(value, list):
        entries = {f"{name}[{i}]": item for i, item in enumerate(value)}
    else:
        return {} if value is None else {name: value}
    return {k: v for key, item in entries.items() for k, v in flat_settings(item, key).items()}


def final_numbers(run: StoredRun) -> dict[str, float]:
    """The last number of each series, as "final.NAME"; none where the last one is not a number."""
    last = {name: float(v[-1]) for name, v in flat_columns(run) if len(v)}
    return {f"final.{name}": value for name, value in last.items() if np.isfinite(value)}


def series_rows(runs: Sequence[StoredRun]) -> Rows:
    """One row for each run and index, a column for each series.

    A series with more dimensions has one column for each of its further entries, `name[2]`; a
    shorter one is padded with nothing.
    """
    rows: Rows = []
    for run in runs:
        columns = dict(flat_columns(run))
        for i in range(max((len(values) for values in columns.values()), default=0)):
            row = {"key": run.key, "label": run.label, "seed": run.seed, "row": i}
            rows.append(row | {k: float(v[i]) for k, v in columns.items() if i < len(v)})
    return rows


def flat_columns(run: StoredRun) -> Iterator[tuple[str, np.ndarray]]:
    for name, values in run.series().items():
        if values.ndim <= 1:
            yield name, np.atleast_1d(values)
        else:
            for j, column in enumerate(values.reshape(len(values), -1).T):
                yield f"{name}[{j}]", column


def column_names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def csv_bytes(rows: Rows) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, column_names(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def parquet_bytes(rows: Rows) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing_extra("Parquet", "parquet") from None
    table = pyarrow.table({name: [row.get(name) for row in rows] for name in column_names(rows)})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def tables(
    runs: Sequence[StoredRun], folder: Path, suffix: str, encode: Callable[[Rows], bytes]
) -> list[Path]:
    """Both tables, encoded before either is written."""
    rows = {"runs": list(map(run_row, runs)), "series": series_rows(runs)}
    data = {folder / f"{name}.{suffix}": encode(table) for name, table in rows.items()}
    for path, content in data.items():
        write_bytes(path, content)
    return list(data)


def to_tensorboard(runs: Sequence[StoredRun], folder: Path) -> list[Path]:
    """One folder of event files per run, each series a scalar at the epochs (or rows) it has.

    Its name has the beginning of the run's key: runs of an edited setup share label and seed.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise missing_extra("TensorBoard", "tensorboard") from None
    paths = []
    for run in runs:
        path = folder / run.label.replace(":", "-") / f"seed{run.seed}-{run.key[:10]}"
        try:
            writer = EventFileWriter(str(path))
            for name, step, value in scalars(run):
                summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
                writer.add_event(Event(step=step, wall_time=run.started or 0.0, summary=summary))
            writer.close()
        except OSError as error:
            raise FlattestError(
                f"Cannot write {path}: {error.strerror or error}; choose another folder with --out."
            ) from error
        paths.append(path)
    return paths


def scalars(run: StoredRun) -> Iterator[tuple[str, int, float]]:
    columns = dict(flat_columns(run))
    epoch = columns.pop("epoch", np.arange(max(map(len, columns.values()), default=0)))
    for name, values in columns.items():
        at = epoch if len(epoch) == len(values) else np.arange(len(values))
        for step, value in zip(at, values, strict=True):
            yield name, int(step), float(value)


def missing_extra(what: str, extra: str) -> FlattestError:
    return FlattestError(f"{what} needs an extra: install flattest with 'flattest[{extra}]'.")


FORMATS: dict[str, Callable[[Sequence[StoredRun], Path], list[Path]]] = {
    "csv": partial(tables, suffix="csv", encode=csv_bytes),
    "parquet": partial(tables, suffix="parquet", encode=parquet_bytes),
    "tensorboard": to_tensorboard,
}
