"""Vardhan, Taheri, Mazumdar: Flatness and Generalization: Learning Multi-Index Models with Homogeneous Neural Networks, arXiv 2606.04429

The copy at hand lost its mathematics: formulas were derived again, and orders of magnitude ("≲ up
to constants and logarithms") are read as fitted exponents.
The tables of its results are in docs/vardhan2026.md.
"""  # noqa: E501
