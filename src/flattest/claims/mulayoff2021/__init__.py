"""The numbered statements of mulayoff2021: lemmas and theorems, equations, figures.

Mulayoff, Michaeli, Soudry: The Implicit Bias of Minima Stability: A View from Function Space
(NeurIPS 2021), with the equation numbers of its supplement.
"""

from flattest.claims.mulayoff2021 import equations, figures, lemmas  # noqa: F401
