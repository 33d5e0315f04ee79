"""What is asked of a user's counts, arrays and names, in one sentence each."""

import numpy as np

from flattest.errors import FlattestError
from flattest.machine import require_memory

MOST = 2**62  # what kernels count with


def check_count(name: str, value, least: int = 1) -> int:
    """The value, which NumPy may have made, as Python's int; raises unless an integer ≥ `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        kind = "a positive integer" if least == 1 else f"an integer ≥ {least}"
        raise FlattestError(f"{name} must be {kind}, not {value!r}.")
    if value > MOST:
        raise FlattestError(f"{name} must be at most 2^62, not {value:.3g}.")
    return int(value)


def check_number(name: str, value, positive: bool = False) -> float:
    """The value as Python's float; raises unless it is a finite number ≥ 0, or > 0."""
    number = isinstance(value, int | float | np.integer | np.floating)
    if not number or isinstance(value, bool) or not 0 <= value < np.inf or (positive and not value):
        raise FlattestError(f"{name} must be a number {'>' if positive else '≥'} 0, not {value!r}.")
    return float(value)


def finite_array(name: str, values) -> np.ndarray:
    """The values as float64, not copied if they are; raises unless all are finite numbers."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"dtype {array.dtype}")
        # A view may stand for more numbers than there are.
        require_memory(array.size / 8, name)
        array = array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise FlattestError(f"{name} must hold real numbers only: {error}.") from None
    if not np.isfinite(array).all():
        raise FlattestError(f"{name} has entries that are not finite (NaN or infinite).")
    return array
