"""The numbered statements of wen2023, in the order of the paper's arguments.

Wen, Li, Ma: Sharpness Minimization Algorithms Do Not Only Minimize Sharpness To Achieve Better
Generalization (NeurIPS 2023, arXiv 2307.11007). Appendix numbers are those of the first version.
"""

from flattest.claims.wen2023 import (  # noqa: F401, I001  (the order is the paper's)
    no_bias,
    batch_norm,
    bias,
    generalizers,
    layer_norm,
    table1,
    uniform,
    logistic,
    concentration,
    rademacher,
    elementary,
)
