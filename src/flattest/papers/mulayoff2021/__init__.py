"""Mulayoff, Michaeli, Soudry: The Implicit Bias of Minima Stability: A View from Function Space, NeurIPS 2021

Equation numbers are those of the supplement.
The tables of its results are in docs/mulayoff2021.md.
"""  # noqa: E501
