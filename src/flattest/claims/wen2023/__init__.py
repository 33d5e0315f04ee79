"""The numbered statements of wen2023, in the order of the paper's arguments.

Wen, Li, Ma: Sharpness Minimization Algorithms Do Not Only Minimize Sharpness To Achieve Better
Generalization (NeurIPS 2023, arXiv 2307.11007). Appendix numbers are those of the first version.
"""

from flattest.claims.wen2023 import (  # noqa: F401
    concentration,
    elementary,
    logistic,
    rademacher,
)
