"""One pass over the first layer for a block of samples, in explicit vector code.

LLVM halves the vector width of automatically vectorized loops on AVX-512 machines and does not
keep a block's accumulators in registers. Vectors of 64 bytes written out by hand are lowered to
whatever the machine has, so this needs no compiler and no particular processor.
"""

from llvmlite import ir
from numba.core import cgutils
from numba.core.types import float64, int64, intp, void
from numba.extending import intrinsic

BLOCK = 8
"""Samples per pass: as many coefficients and as many accumulators fit 32 vector registers."""

VECTOR_BYTES = 64


class _Vectors:
    """Emits vector loads, stores and fused multiply-adds for one element type."""

    def __init__(self, context, builder, dtype):
        self.builder = builder
        self.element = context.get_value_type(dtype)
        self.itemsize = context.get_abi_sizeof(self.element)
        self.lanes = VECTOR_BYTES // self.itemsize
        self.type = ir.VectorType(self.element, self.lanes)
        suffix = f"v{self.lanes}f{8 * self.itemsize}"
        self._fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(self.type, [self.type] * 3), f"llvm.fma.{suffix}"
        )

    def _pointer(self, base, offset):
        address = self.builder.gep(base, [offset])
        return self.builder.bitcast(address, self.type.as_pointer())

    def load(self, base, offset):
        return self.builder.load(self._pointer(base, offset), align=self.itemsize)

    def store(self, value, base, offset):
        self.builder.store(value, self._pointer(base, offset), align=self.itemsize)

    def spread(self, scalar):
        """All lanes equal to the scalar."""
        undefined = ir.Constant(self.type, ir.Undefined)
        single = self.builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(single, undefined, zeros)

    def spread_from(self, base, offset):
        return self.spread(self.builder.load(self.builder.gep(base, [offset])))

    def fma(self, a, b, c):
        return self.builder.call(self._fma, [a, b, c])

    def zero(self):
        return ir.Constant(self.type, [0.0] * self.lanes)


@intrinsic
def sweep_tile(typingctx, tile, weights, scale, updates, x_old, x_new, products):
    """One tile of neurons: W ← scale · (W + Σ_k x_old_k updates_k), products_k = W · x_new_k.

    weights: (tiles, inputs, lanes). updates, products: (BLOCK, tiles · lanes).
    x_old, x_new: (inputs, BLOCK).
    """
    signature = void(intp, weights, weights.dtype, updates, x_old, x_new, products)

    def generate(context, builder, sig, args):
        index = ir.IntType(64)
        vectors = _Vectors(context, builder, weights.dtype)
        arrays = {
            name: context.make_array(kind)(context, builder, value)
            for name, kind, value in zip(
                ("W", "U", "old", "new", "P"),
                (sig.args[1], *sig.args[3:]),
                (args[1], *args[3:]),
                strict=True,
            )
        }
        data = {name: array.data for name, array in arrays.items()}
        inputs = builder.extract_value(arrays["W"].shape, 1)
        neurons = builder.extract_value(arrays["U"].shape, 1)
        lanes = ir.Constant(index, vectors.lanes)
        first_weight = builder.mul(builder.mul(args[0], inputs), lanes)
        first_neuron = builder.mul(args[0], lanes)
        columns = [
            builder.add(first_neuron, builder.mul(ir.Constant(index, k), neurons))
            for k in range(BLOCK)
        ]
        u = [vectors.load(data["U"], column) for column in columns]
        factor = vectors.spread(args[2])
        sums = [cgutils.alloca_once_value(builder, vectors.zero()) for _ in range(BLOCK)]
        for accumulator in sums:
            builder.store(vectors.zero(), accumulator)
        with cgutils.for_range(builder, inputs) as loop:
            at = builder.add(first_weight, builder.mul(loop.index, lanes))
            row = builder.mul(loop.index, ir.Constant(index, BLOCK))
            x_at = [builder.add(row, ir.Constant(index, k)) for k in range(BLOCK)]
            w = vectors.load(data["W"], at)
            for k in range(BLOCK):
                w = vectors.fma(u[k], vectors.spread_from(data["old"], x_at[k]), w)
            w = builder.fmul(w, factor)
            vectors.store(w, data["W"], at)
            for k in range(BLOCK):
                x = vectors.spread_from(data["new"], x_at[k])
                builder.store(vectors.fma(w, x, builder.load(sums[k])), sums[k])
        for k in range(BLOCK):
            vectors.store(builder.load(sums[k]), data["P"], columns[k])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def power_of_two(typingctx, exponent):
    """2.0 ** exponent for an int64 within the range of normal float64 numbers."""

    def generate(context, builder, sig, args):
        biased = builder.add(args[0], ir.Constant(ir.IntType(64), 1023))
        bits = builder.shl(biased, ir.Constant(ir.IntType(64), 52))
        return builder.bitcast(bits, ir.DoubleType())

    return float64(int64), generate
