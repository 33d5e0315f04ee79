"""Wen, Li, Ma: Sharpness Minimization Algorithms Do Not Only Minimize Sharpness To Achieve Better Generalization, NeurIPS 2023

arXiv 2307.11007. Appendix numbers are those of the first version.
The tables of its results are in docs/wen2023.md.
"""  # noqa: E501
