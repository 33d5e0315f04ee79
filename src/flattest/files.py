"""Files written whole or not at all: bytes, JSON, series (npz) and tensors (safetensors).

Nothing here pickles, so a stranger's run can be opened safely.
"""

import errno
import io
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors, save as save_safetensors

from flattest.errors import FlattestError


class StoreError(FlattestError):
    """The store cannot be written or read: the disk or the folder is at fault, not a run."""


Arrays = dict[str, np.ndarray]

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
ANOTHER_STORE = "another folder with --store"


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
    """`place` says what else the user may choose, with the option where it is known."""
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
    arrays = {name: np.array(value, order="C") for name, value in tensors.items()}
    write_bytes(path, save_safetensors(arrays, metadata=metadata or None))


def float64(name: str, value: Any) -> np.ndarray:
    try:
        return np.array(value, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise FlattestError(f"The series {name!r} is not an array of numbers.") from error


def read_json(path: Path, type: Any = Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=type)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def read_series(path: Path) -> Arrays:
    try:
        # Opened here, because NumPy leaves a truncated archive open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # NumPy raises many kinds for a file that is damaged.
        raise unreadable(path, error) from error


def read_arrays(path: Path | str, *names: str) -> Arrays:
    """The arrays of a user's .npz, all or those named; pickled contents are refused."""
    present(path)
    try:
        # Opened here, because NumPy leaves a broken file open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            held = archive.files
            found = {name: archive[name] for name in names or held if name in held}
    except Exception as error:  # NumPy raises many kinds for a file that is not an .npz.
        raise FlattestError(
            f"{path} cannot be read as an .npz of arrays; it is damaged, pickled or something else."
        ) from error
    if not found.keys() >= set(names):
        wanted, holds = " and ".join(names), ", ".join(held) or "none"
        raise FlattestError(f"{path} must hold arrays named {wanted}; it has {holds}.")
    return found


def present(path: Path | str) -> None:
    """Refuse a user's path that is not a file."""
    if Path(path).is_dir():
        raise FlattestError(f"{path} is a folder, not a file.")
    if not Path(path).exists():
        raise FlattestError(f"There is no file {path}.")


def read_tensors(path: Path) -> Arrays:
    try:
        return load_safetensors(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise unreadable(path, error) from error


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
