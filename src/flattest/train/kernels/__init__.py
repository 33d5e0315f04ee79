"""Numba kernels of the fused engine: one module per family of networks.

simd: vector code for one pass over the first layer. common: activations, losses, the step rule.
two_layer: batch size 1, plain and Sim-LN.
All release the GIL and stop at the first step whose outputs are not finite.
"""
