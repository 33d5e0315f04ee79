"""The order of samples and the label noise, as pure functions of (seed, epoch).

Both engines draw from here, so they see the same samples however a run is cut into chunks,
spread over workers or resumed. The generator is counter-based: word t of a stream is
splitmix64's finalizer applied to key + t·φ, with the key derived from (seed, purpose, epoch).
"""

import numpy as np

from flattest.compiled import njit
from flattest.errors import FlattestError

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_S27, _S30, _S31, _S32, _S63 = (np.uint64(s) for s in (27, 30, 31, 32, 63))

_ORDER = np.uint64(1)
_NOISE = np.uint64(2)


@njit(inline="always")
def _mix(z):
    """Finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words."""
    z = (z ^ (z >> _S30)) * _MIX_A
    z = (z ^ (z >> _S27)) * _MIX_B
    return z ^ (z >> _S31)


@njit(inline="always")
def _key(seed, purpose, epoch):
    """Stream key; three rounds so that no two (seed, purpose, epoch) have shifted streams."""
    z = _mix(seed + _GOLDEN)
    z = _mix(z ^ (purpose * _MIX_B))
    return _mix(z + _mix(np.uint64(epoch) + _GOLDEN))


@njit(inline="always")
def _word(key, counter):
    return _mix(key + counter * _GOLDEN)


@njit(inline="always")
def _below(key, counter, bound):
    """Unbiased integer in [0, bound), bound < 2³² (Lemire 2019); also the advanced counter."""
    bound = np.uint64(bound)
    product = (_word(key, counter) >> _S32) * bound
    counter += _ONE
    if (product & _LOW) < bound:
        threshold = ((_ONE << _S32) - bound) % bound
        while (product & _LOW) < threshold:
            product = (_word(key, counter) >> _S32) * bound
            counter += _ONE
    return np.int64(product >> _S32), counter


@njit(nogil=True, cache=True)
def fill_order(seed, epoch, replacement, order):
    """Write one epoch's sample indices into `order` (seed: uint64)."""
    n = order.size
    key = _key(seed, _ORDER, epoch)
    counter = _ONE
    if replacement:
        for i in range(n):
            j, counter = _below(key, counter, n)
            order[i] = j
        return
    for i in range(n):
        order[i] = i
    for i in range(n - 1, 0, -1):
        j, counter = _below(key, counter, i + 1)
        order[i], order[j] = order[j], order[i]


@njit(nogil=True, cache=True)
def fill_signs(seed, epoch, signs):
    """Write one epoch's label-noise signs ±1 into `signs` (seed: uint64)."""
    key = _key(seed, _NOISE, epoch)
    for i in range(signs.size):
        top_bit = _word(key, np.uint64(i + 1)) >> _S63
        signs[i] = 1.0 if top_bit == _ONE else -1.0


def stream_seed(seed: int) -> np.uint64:
    """The seed as the generator's 64-bit word."""
    return np.uint64(seed & 0xFFFFFFFFFFFFFFFF)


def sample_order(seed: int, first_epoch: int, epochs: int, n: int, replacement: bool) -> np.ndarray:
    """Sample indices (epochs, n): a shuffled pass per epoch, or n i.i.d. draws."""
    order = np.empty(_shape(first_epoch, epochs, n), np.int32)
    for k in range(epochs):
        fill_order(stream_seed(seed), first_epoch + k, bool(replacement), order[k])
    return order


def label_noise_signs(seed: int, first_epoch: int, epochs: int, n: int) -> np.ndarray:
    """Signs ±1 (epochs, n) of the label noise: entry (e, t) belongs to the t-th draw of epoch e."""
    signs = np.empty(_shape(first_epoch, epochs, n))
    for k in range(epochs):
        fill_signs(stream_seed(seed), first_epoch + k, signs[k])
    return signs


def _shape(first_epoch: int, epochs: int, n: int) -> tuple[int, int]:
    if first_epoch < 0 or epochs < 0 or n < 1:
        raise FlattestError(
            f"Sample order needs first_epoch >= 0, epochs >= 0 and n >= 1, "
            f"not {first_epoch}, {epochs} and {n}."
        )
    return epochs, n
