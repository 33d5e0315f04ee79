"""Files written whole or not at all: bytes, JSON, series (npz) and tensors (safetensors).

Nothing here pickles, so a stranger's run can be opened safely.
"""

import csv
import errno
import io
import os
import stat
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors, save as save_safetensors

from flattest.errors import FlattestError


class StoreError(FlattestError):
    """The store cannot be written or read: the disk or the folder is at fault, not a run."""


Arrays = dict[str, np.ndarray]

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically: a reader sees the old file or the new one, never a part.

    The temporary file is in the same folder (os.replace does not cross file systems) and is synced
    before it takes the name, so that a power cut cannot leave the name on an empty file. It is
    made by open, which gives it the mode that the umask allows; tempfile's are the owner's alone.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
        try:
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unwritable(path: Path, error: OSError, place: str = "another place") -> StoreError:
    """`place` says what else the user may choose."""
    remedy = "free some space" if error.errno in FULL else "see that its folder can be written"
    return StoreError(
        f"Cannot write {path}: {error.strerror or error}; {remedy}, or choose {place}."
    )


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def write_series(path: Path, series: Mapping[str, Any]) -> None:
    """Named float64 arrays as npz."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{k: float64(k, v) for k, v in series.items()})
    write_bytes(path, buffer.getvalue())


def write_tensors(path: Path, tensors: Mapping[str, Any], **metadata: str) -> None:
    """Named arrays of any dtype as safetensors, with strings of metadata."""
    write_bytes(path, tensor_bytes(tensors, **metadata))


def tensor_bytes(tensors: Mapping[str, Any], **metadata: str) -> bytes:
    """What `write_tensors` writes."""
    arrays = {name: np.array(value, order="C") for name, value in tensors.items()}
    return save_safetensors(arrays, metadata=metadata or None)


def float64(name: str, value: Any) -> np.ndarray:
    try:
        return np.array(value, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise FlattestError(f"The series {name!r} is not an array of numbers.") from error


def read_bytes(path: Path) -> bytes:
    """What a file holds; pipes and devices, which may keep a reader waiting, are refused."""
    with opened(path) as file:
        return file.read()


def opened(path: Path) -> BinaryIO:
    """A file to read from its start; not a pipe or a device."""
    # O_NONBLOCK has no effect on files, and lets a pipe that nobody writes to be opened.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Not a file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_json(path: Path, type: Any = Any) -> Any:
    try:
        return msgspec.json.decode(read_bytes(path), type=type)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def read_series(path: Path) -> Arrays:
    try:
        return _npz(path)[0]
    except Exception as error:
        raise unreadable(path, error) from error


def read_arrays(path: Path | str, *names: str) -> Arrays:
    """The arrays of a user's .npz, all or those named; pickled contents are refused."""
    present(path)
    try:
        found, held = _npz(Path(path), *names)
    except Exception as error:
        raise FlattestError(
            f"{path} cannot be read as an .npz of arrays; it is damaged, pickled or something else."
        ) from error
    if not found.keys() >= set(names):
        wanted, holds = " and ".join(names), ", ".join(held) or "none"
        raise FlattestError(f"{path} must hold arrays named {wanted}; it has {holds}.")
    return found


def read_columns(path: Path | str) -> Arrays:
    """The columns of numbers of a user's .csv, whose first line names them, or .parquet."""
    present(path)
    read = {".csv": _csv, ".parquet": _parquet}[Path(path).suffix]
    try:
        return read(Path(path))
    except FlattestError:
        raise
    except Exception as error:
        raise FlattestError(f"{path} cannot be read as columns of numbers: {error}.") from error


def _csv(path: Path) -> Arrays:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        names = next(rows, [])
        values = np.array([[float(cell) for cell in row] for row in rows if row])
    if len(set(names)) != len(names) or values.ndim != 2 or values.shape[1] != len(names):
        raise ValueError("its first line must name every column once, and rows must be as long")
    return dict(zip(names, values.T, strict=True))


def _parquet(path: Path) -> Arrays:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise FlattestError(
            "Parquet files are read by pyarrow: `pip install 'flattest[parquet]'`."
        ) from error
    table = parquet.read_table(path)
    return {name: table[name].to_numpy().astype(np.float64) for name in table.column_names}


def _npz(path: Path, *names: str) -> tuple[Arrays, list[str]]:
    """Its arrays, all or those named that it has, and the names of all it has.

    NumPy raises many kinds of errors for a file that is damaged or something else.
    """
    # Opened here, because NumPy leaves a broken file open.
    with opened(path) as file, np.load(file, allow_pickle=False) as archive:
        held = archive.files
        return {name: archive[name] for name in names or held if name in held}, held


def present(path: Path | str) -> None:
    """Refuse a user's path that is not a file."""
    if Path(path).is_dir():
        raise FlattestError(f"{path} is a folder, not a file.")
    if not Path(path).exists():
        raise FlattestError(f"There is no file {path}.")


def read_tensors(path: Path) -> tuple[Arrays, dict[str, str]]:
    """The arrays that `write_tensors` wrote, and the metadata."""
    try:
        return tensors_of(read_bytes(path))
    except (OSError, SafetensorError) as error:
        raise unreadable(path, error) from error


def tensors_of(data: bytes) -> tuple[Arrays, dict[str, str]]:
    """Arrays, sorted by name, and metadata of what `tensor_bytes` returned."""
    try:
        found = load_safetensors(data)
    except KeyError as error:
        raise SafetensorError(f"NumPy has no type {error}") from None
    header = msgspec.json.decode(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {name: found[name] for name in sorted(found)}, header.get("__metadata__", {})


def check_size(path: Path, size: int) -> None:
    """Refuse a file that is missing or was cut short, without reading it."""
    try:
        found = path.stat().st_size
    except OSError as error:
        raise unreadable(path, error) from error
    if found != size:
        raise unreadable(path, ValueError(f"{found} bytes instead of {size}"))


def unreadable(path: Path, error: Exception) -> FlattestError:
    """What is wrong with a file; one that we may not read is no worse for it."""
    if isinstance(error, PermissionError):
        return StoreError(f"Cannot read {path}: {error.strerror}; ask its owner for access.")
    reason = "it is missing" if isinstance(error, FileNotFoundError) else f"it is damaged ({error})"
    return FlattestError(f"Cannot read {path.parent.name}/{path.name}: {reason}.")
