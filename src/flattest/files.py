"""Files written whole or not at all: bytes, JSON, series (npz) and tensors (safetensors).

Nothing here pickles, so a stranger's run can be opened safely. Sealed JSON and tensors carry a
digest of what they say, which is verified when they are read: bytes that rot are noticed. It is no
signature: who can write a file can also write its digest.
"""

import contextlib
import csv
import errno
import functools
import hashlib
import io
import math
import os
import stat
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors, save as save_safetensors

from flattest.errors import FlattestError
from flattest.machine import require_memory


class StoreError(FlattestError):
    """The store cannot be written or read: the disk or the folder is at fault, not a run."""


Arrays = dict[str, np.ndarray]

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
STALE_DRAFT = 600.0  # seconds after which nobody is still writing a temporary file
SEAL = "seal"
NOT_JSON = (OSError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


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


def remove_stale_drafts(folder: Path, pattern: str = "**/.*.tmp*") -> None:
    """Remove the temporary files that killed processes and full disks left."""
    for draft in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > STALE_DRAFT:
                draft.unlink()


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


def write_sealed(path: Path, value: Any) -> None:
    """JSON of an object, with a digest of it among its fields."""
    plain = msgspec.json.decode(msgspec.json.encode(value))
    plain.pop(SEAL, None)
    write_json(path, plain | {SEAL: _seal_of_json(plain)})


def _seal_of_json(plain: dict[str, Any]) -> str:
    return digest(msgspec.json.encode(plain, order="sorted"))


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def write_series(path: Path, series: Mapping[str, Any]) -> str:
    """Named float64 arrays as npz; returns the digest of the file."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{k: float64(k, v) for k, v in series.items()})
    write_bytes(path, buffer.getvalue())
    return digest(buffer.getvalue())


def write_tensors(path: Path, tensors: Mapping[str, Any], **metadata: str) -> str:
    """Named arrays of any dtype as safetensors, with strings of metadata; returns the digest of
    the file."""
    data = tensor_bytes(tensors, **metadata)
    write_bytes(path, data)
    return digest(data)


def tensor_bytes(tensors: Mapping[str, Any], **metadata: str) -> bytes:
    """What `write_tensors` writes, sealed."""
    arrays = {name: np.array(value, order="C") for name, value in tensors.items()}
    return save_safetensors(arrays, metadata | {SEAL: _seal_of_tensors(arrays, metadata)})


def _seal_of_tensors(arrays: Arrays, metadata: Mapping[str, str]) -> str:
    """Of names, types, shapes and numbers: the file's own order of them is not fixed."""
    found = hashlib.blake2b(msgspec.json.encode(metadata, order="sorted"), digest_size=16)
    for name, array in sorted(arrays.items()):
        found.update(f"{name!r} {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


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
    except NOT_JSON as error:
        raise unreadable(path, error) from error


def read_sealed(path: Path, type: Any) -> Any:
    """What `write_sealed` wrote; a file that has no seal is older than seals."""
    try:
        data = read_bytes(path)
        found, plain = msgspec.json.decode(data, type=type), msgspec.json.decode(data)
        _require_equal(plain.pop(SEAL, None), lambda: _seal_of_json(plain))
    except NOT_JSON as error:
        raise unreadable(path, error) from error
    return found


class Changed(ValueError):
    """What is read is not what was written."""


def _require_equal(stated: str | None, found: Callable[[], str]) -> None:
    """Refuse what is not what was written, where it says what that was."""
    if stated is not None and stated != found():
        raise Changed("its digest does not match")


def read_series(path: Path, stated: str | None = None) -> Arrays:
    """What `write_series` wrote, held against the digest it returned."""
    try:
        data = read_bytes(path)
        _require_equal(stated, lambda: digest(data))
        return _npz(io.BytesIO(data))[0]
    except Exception as error:
        raise unreadable(path, error) from error


def read_arrays(path: Path | str, *names: str) -> Arrays:
    """The arrays of a user's .npz, all or those named; pickled contents are refused."""
    present(path)
    try:
        with opened(Path(path)) as file:
            found, held = _npz(file, *names)
    except FlattestError as error:
        raise FlattestError(f"{path} is too large: {error}") from error
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


def _npz(file: BinaryIO, *names: str) -> tuple[Arrays, list[str]]:
    """Its arrays, all or those named that it has, and the names of all it has.

    NumPy raises many kinds of errors for a file that is damaged or something else.
    """
    with np.load(file, allow_pickle=False) as archive:
        if hasattr(archive, "zip"):
            size = sum(entry.file_size for entry in archive.zip.infolist())
            require_memory(size / 8, "What is packed in it")
        held = archive.files
        return {name: _array(archive, name) for name in names or held if name in held}, held


def _array(archive: Any, name: str) -> np.ndarray:
    """An array of an .npz, as NumPy reads it; the header, which it parses as Python, is parsed once
    for all arrays of a shape."""
    if not hasattr(archive, "zip") or f"{name}.npy" not in archive.zip.NameToInfo:
        return archive[name]
    data = archive.zip.read(f"{name}.npy")
    begin = 10 + int.from_bytes(data[8:10], "little")
    if data[:8] != _NPY_1 or begin > len(data):
        return archive[name]
    shape, columns_first, dtype = _header(data[8:begin])
    if dtype.hasobject or len(data) != begin + dtype.itemsize * math.prod(shape):
        return archive[name]
    order: Literal["F", "C"] = "F" if columns_first else "C"
    return np.frombuffer(bytearray(data), dtype, offset=begin).reshape(shape, order=order)


_NPY_1 = np.lib.format.magic(1, 0)


@functools.lru_cache(maxsize=1000)
def _header(text: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    return np.lib.format.read_array_header_1_0(io.BytesIO(text))


def present(path: Path | str) -> None:
    """Refuse a user's path that is not a file."""
    if Path(path).is_dir():
        raise FlattestError(f"{path} is a folder, not a file.")
    if not Path(path).exists():
        raise FlattestError(f"There is no file {path}.")


def read_tensors(path: Path, stated: str | None = None) -> tuple[Arrays, dict[str, str]]:
    """The arrays that `write_tensors` wrote, and the metadata, held against the digest it gave."""
    try:
        data = read_bytes(path)
        _require_equal(stated, lambda: digest(data))
        return tensors_of(data)
    except (OSError, ValueError, SafetensorError) as error:
        raise unreadable(path, error) from error


def tensors_of(data: bytes) -> tuple[Arrays, dict[str, str]]:
    """Arrays, sorted by name, and metadata of what `tensor_bytes` returned."""
    try:
        found = load_safetensors(data)
    except KeyError as error:
        raise SafetensorError(f"NumPy has no type {error}") from None
    header = msgspec.json.decode(data[8 : 8 + int.from_bytes(data[:8], "little")])
    metadata = header.get("__metadata__", {})
    _require_equal(metadata.pop(SEAL, None), lambda: _seal_of_tensors(found, metadata))
    return {name: found[name] for name in sorted(found)}, metadata


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
    return FlattestError(f"Cannot read {as_text(Path(path.parent.name, path.name))}: {reason}.")


def as_text(path: Path | str) -> str:
    """A path that can be printed: a name on disk need not be text."""
    return os.fsencode(path).decode(errors="replace")
