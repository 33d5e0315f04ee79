"""The three passes over neurons of a step with f = Σ_j a_j σ(h_j), σ(t) = t or low · t for t ≤ 0.

∂f/∂a_j = σ(h_j) and ∂f/∂h_j = a_j σ′(h_j) are so cheap that they are computed again in each pass
rather than stored. Arrays are padded by 0 to pairs of vectors. The two passes above h come twice:
`free_`, where σ′ is taken at h', and `kept_`, where it stays that of h.
"""

from flattest.training.kernels.common import uncounted
from flattest.training.kernels.simd import VECTOR_BYTES, fma, load, positive, spread, store, total


@uncounted
def _climb_freely(h, a, j, low, one, e, reach):
    """a' = a + e σ(h), h' = h + reach · a σ′(h), σ′(h'), for the vector at j."""
    t, b = load(h, j), load(a, j)
    gain = positive(t, one, low)
    up = fma(reach, b * gain, t)
    return fma(e, t * gain, b), up, positive(up, one, low)


@uncounted
def _climb_in_pattern(h, a, j, low, one, e, reach):
    """The same with σ′(h) in the place of σ′(h')."""
    t, b = load(h, j), load(a, j)
    gain = positive(t, one, low)
    return fma(e, t * gain, b), fma(reach, b * gain, t), gain


@uncounted
def _outputs_at(h, a, j, low, one, sums):
    t, b = load(h, j), load(a, j)
    gain = positive(t, one, low)
    z, u = t * gain, b * gain
    return fma(b, z, sums[0]), fma(z, z, sums[1]), fma(u, u, sums[2])


@uncounted
def outputs(low, h, a):
    """f, ‖∂f/∂a‖², ‖∂f/∂h‖²; two vectors at a time, for the sums' latency."""
    one, low, zero = spread(h.dtype.type(1)), spread(h.dtype.type(low)), spread(h.dtype.type(0))
    even, odd = (zero, zero, zero), (zero, zero, zero)
    lanes = VECTOR_BYTES // h.itemsize
    for j in range(0, h.size, 2 * lanes):
        even = _outputs_at(h, a, j, low, one, even)
        odd = _outputs_at(h, a, j + lanes, low, one, odd)
    return total(even[0] + odd[0]), total(even[1] + odd[1]), total(even[2] + odd[2])


def _passes_above(climb):
    """The passes at a' and h': f', and the step down from there."""

    @uncounted
    def outputs(low, h, a, e, reach):
        """f' at a' = a + e σ(h), h' = h + reach · a σ′(h)."""
        one, low, zero = spread(h.dtype.type(1)), spread(h.dtype.type(low)), spread(h.dtype.type(0))
        e, reach = spread(h.dtype.type(e)), spread(h.dtype.type(reach))
        even, odd = zero, zero
        lanes = VECTOR_BYTES // h.itemsize
        for j in range(0, h.size, 2 * lanes):
            b, t, gain = climb(h, a, j, low, one, e, reach)
            even = fma(b * gain, t, even)
            b, t, gain = climb(h, a, j + lanes, low, one, e, reach)
            odd = fma(b * gain, t, odd)
        return total(even + odd)

    @uncounted
    def descend(low, h, a, e, reach, keep, g, factor, u, at):
        """a ← keep · a − g σ(h'), u.flat[at:] = factor · a' σ′(h'), with a' and h' as above."""
        one, low = spread(h.dtype.type(1)), spread(h.dtype.type(low))
        e, reach = spread(h.dtype.type(e)), spread(h.dtype.type(reach))
        keep, down, factor = (
            spread(h.dtype.type(keep)),
            spread(h.dtype.type(-g)),
            spread(h.dtype.type(factor)),
        )
        for j in range(0, h.size, VECTOR_BYTES // h.itemsize):
            b, t, gain = climb(h, a, j, low, one, e, reach)
            store(u, at + j, factor * (b * gain))
            store(a, j, fma(down, t * gain, keep * load(a, j)))

    return outputs, descend


free_outputs, free_descend = _passes_above(_climb_freely)
kept_outputs, kept_descend = _passes_above(_climb_in_pattern)
