"""Vectors of 64 bytes for Numba, and the products built from them.

LLVM halves the vector width of automatically vectorized loops on AVX-512 machines, gives up where
many arrays might overlap, and does not keep a block's accumulators in registers. Vectors written
out are lowered to whatever the machine has, so this needs no compiler and no particular processor.
"""

import operator

from llvmlite import ir
from llvmlite.binding import Linkage
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model

BLOCK = 8
"""Samples per pass: as many coefficients and as many accumulators fit 32 vector registers."""

PANEL = 2
"""Vectors side by side in a panel product: 8 × 2 accumulators keep both multipliers busy."""

VECTOR_BYTES = 64


class Vector(types.Type):
    """64 bytes of float32 or float64; exists inside kernels only."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"vector({dtype})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        element = ir.FloatType() if kind.dtype == types.float32 else ir.DoubleType()
        lanes = VECTOR_BYTES * 8 // kind.dtype.bitwidth
        super().__init__(manager, kind, ir.VectorType(element, lanes))


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
def load(typingctx, array, offset):
    """The vector at array.flat[offset:]; the array is contiguous."""

    def generate(context, builder, sig, args):
        data = context.make_array(array)(context, builder, args[0]).data
        return _Vectors(context, builder, array.dtype).load(data, args[1])

    return Vector(array.dtype)(array, types.intp), generate


@intrinsic
def store(typingctx, array, offset, vector):
    """array.flat[offset:] = vector."""

    def generate(context, builder, sig, args):
        data = context.make_array(array)(context, builder, args[0]).data
        _Vectors(context, builder, array.dtype).store(args[2], data, args[1])
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@intrinsic
def spread(typingctx, scalar):
    """The vector with all lanes equal to a float32 or float64."""

    def generate(context, builder, sig, args):
        return _Vectors(context, builder, scalar).spread(args[0])

    return Vector(scalar)(scalar), generate


@intrinsic
def fma(typingctx, a, b, c):
    """a · b + c."""

    def generate(context, builder, sig, args):
        return _Vectors(context, builder, a.dtype).fma(*args)

    return a(a, b, c), generate


@intrinsic
def positive(typingctx, t, yes, no):
    """`yes` where t > 0, else `no` (also where t is not a number)."""

    def generate(context, builder, sig, args):
        zero = _Vectors(context, builder, t.dtype).zero()
        return builder.select(builder.fcmp_ordered(">", args[0], zero), args[1], args[2])

    return yes(t, yes, no), generate


@intrinsic
def greater(typingctx, a, b):
    """The greater of a and b in each lane; b where one of them is not a number."""

    def generate(context, builder, sig, args):
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return a(a, b), generate


@intrinsic
def total(typingctx, vector):
    """The sum of the lanes."""

    def generate(context, builder, sig, args):
        value = _halved(builder, args[0], 1)
        return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    return vector.dtype(vector), generate


@intrinsic
def add_pair(typingctx, array, offset, vector):
    """array.flat[offset : offset + 2] += the sums of the even lanes and of the odd ones."""

    def generate(context, builder, sig, args):
        data = context.make_array(array)(context, builder, args[0]).data
        pair = _halved(builder, args[2], 2)
        at = builder.bitcast(builder.gep(data, [args[1]]), pair.type.as_pointer())
        itemsize = VECTOR_BYTES // args[2].type.count
        before = builder.load(at, align=itemsize)
        builder.store(builder.fadd(before, pair), at, align=itemsize)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


def _halved(builder, value, lanes):
    """Halves of a vector added until so many lanes are left."""
    while (half := value.type.count // 2) >= lanes:
        picks = ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(half)))
        rest = ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(half, 2 * half)))
        low = builder.shuffle_vector(value, value, picks)
        value = builder.fadd(low, builder.shuffle_vector(value, value, rest))
    return value


@intrinsic
def _product(typingctx, a, b):
    return a(a, b), lambda context, builder, sig, args: builder.fmul(*args)


@intrinsic
def _sum(typingctx, a, b):
    return a(a, b), lambda context, builder, sig, args: builder.fadd(*args)


@overload(operator.mul)
def _overload_mul(a, b):
    return (lambda a, b: _product(a, b)) if isinstance(a, Vector) and a == b else None


@overload(operator.add)
def _overload_add(a, b):
    return (lambda a, b: _sum(a, b)) if isinstance(a, Vector) and a == b else None


@intrinsic
def sweep_tile(typingctx, tile, weights, scale, updates, x_old, x_new, products):
    """One tile of neurons: W ← scale · (W + Σ_k x_old_k updates_k), products_k = W · x_new_k.

    weights: (tiles, inputs, lanes). updates, products: (BLOCK, tiles · lanes).
    x_old, x_new: (inputs, BLOCK).
    """
    signature = types.void(types.intp, weights, weights.dtype, updates, x_old, x_new, products)

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
            old = [vectors.spread_from(data["old"], x) for x in x_at]
            # Two sums side by side: one chain of eight would keep the multipliers waiting.
            w, change = vectors.load(data["W"], at), builder.fmul(u[1], old[1])
            for k in range(0, BLOCK, 2):
                w = vectors.fma(u[k], old[k], w)
            for k in range(3, BLOCK, 2):
                change = vectors.fma(u[k], old[k], change)
            w = builder.fmul(builder.fadd(w, change), factor)
            vectors.store(w, data["W"], at)
            for k in range(BLOCK):
                x = vectors.spread_from(data["new"], x_at[k])
                builder.store(vectors.fma(w, x, builder.load(sums[k])), sums[k])
        for k in range(BLOCK):
            vectors.store(builder.load(sums[k]), data["P"], columns[k])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def panel_product(typingctx, left, panel, result):
    """result[8 b + i] = Σ_k left[b, k, i] · panel[k]; rows of panel and result are PANEL vectors.

    left: (blocks, length, 8). panel: (≥ length, lanes). result: (≥ 8 blocks, lanes).
    """

    def generate(context, builder, sig, args):
        index = ir.IntType(64)
        vectors = _Vectors(context, builder, panel.dtype)
        left_, panel_, result_ = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(sig.args, args, strict=True)
        )
        blocks, length = (builder.extract_value(left_.shape, axis) for axis in (0, 1))
        lanes = [ir.Constant(index, vectors.lanes * v) for v in range(PANEL)]
        row = ir.Constant(index, vectors.lanes * PANEL)
        cells = [(i, v) for i in range(BLOCK) for v in range(PANEL)]
        sums = {cell: cgutils.alloca_once(builder, vectors.type) for cell in cells}
        with cgutils.for_range(builder, blocks) as block:
            for cell in cells:
                builder.store(vectors.zero(), sums[cell])
            start = builder.mul(block.index, length)
            with cgutils.for_range(builder, length) as step:
                at = builder.mul(builder.add(start, step.index), ir.Constant(index, BLOCK))
                base = builder.mul(step.index, row)
                p = [vectors.load(panel_.data, builder.add(base, lane)) for lane in lanes]
                for i in range(BLOCK):
                    offset = builder.add(at, ir.Constant(index, i))
                    factor = vectors.spread_from(left_.data, offset)
                    for v in range(PANEL):
                        total = vectors.fma(factor, p[v], builder.load(sums[i, v]))
                        builder.store(total, sums[i, v])
            top = builder.mul(block.index, ir.Constant(index, BLOCK))
            for i, v in cells:
                base = builder.mul(builder.add(top, ir.Constant(index, i)), row)
                vectors.store(builder.load(sums[i, v]), result_.data, builder.add(base, lanes[v]))
        return context.get_dummy_value()

    return types.void(left, panel, result), generate


@intrinsic
def out_of_line(typingctx):
    """Keeps the function it stands in from being copied into its callers: less to compile."""

    def generate(context, builder, sig, args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def own_copies(typingctx):
    """Gives the function it stands in copies of its own of what it calls out of line.

    Numba compiles a callee by itself, and once more within its caller, maybe to other last bits. A
    process that compiles the caller would run the first, one that loads it from disk has only the
    second. There is no public way to say so: the copies are made private when all is optimized.
    """

    def generate(context, builder, sig, args):
        library = context.active_code_library
        finalize = library._finalize_final_module

        def finalize_with_private_copies():
            for function in library._final_module.functions:
                if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                    function.linkage = Linkage.internal
            finalize()

        library._finalize_final_module = finalize_with_private_copies
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def power_of_two(typingctx, exponent):
    """2.0 ** exponent for an int64 within the range of normal float64 numbers."""

    def generate(context, builder, sig, args):
        biased = builder.add(args[0], ir.Constant(ir.IntType(64), 1023))
        bits = builder.shl(biased, ir.Constant(ir.IntType(64), 52))
        return builder.bitcast(bits, ir.DoubleType())

    return types.float64(types.int64), generate
