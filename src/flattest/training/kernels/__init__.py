"""Numba kernels of the fused engine.

single: one sample at a time, two and three layers; with leaky (its passes over neurons for
piecewise linear σ) and three_layer (what is above the first layer). sim_bn: the same for Sim-BN;
with signs (products with inputs ±1). batches: any batch size, every family. common: activations,
losses, the step rule. simd: vectors. univariate: gradient descent of univariate networks.
All release the GIL and stop at the first step whose output is not finite.

Compiled code is kept on disk. Numba looks at the changes of one file only, so every kernel takes
`SOURCES` (in sources), the fingerprint of all of them, as its last argument: it is part of the
kept code's key.
"""
