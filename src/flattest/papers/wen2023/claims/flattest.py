"""The least trace over all widths, on instances: what Theorems 3.1 and 4.1 are about, by proof."""

from functools import cache

import numpy as np

import flattest as ft
from flattest.evidence import Verdict, at_least, equal
from flattest.ledger.claim import claim, provided
from flattest.problem.randomness import generator
from flattest.studies.question1.faces import four_neurons

D, N, SEED = 30, 100, 0


@cache
def _normal(bias: bool) -> ft.FlattestNetwork:
    rng = generator(0, "claims/flattest")
    data = ft.Dataset(rng.normal(size=(7, 3)), rng.normal(size=7))
    return ft.flattest_network(ft.MLP(7, bias=bias), data)


@claim(
    "wen2023/all-widths/equation-3",
    "With bias, where all inputs are extreme points, the least trace over all widths is "
    "(4/n) Σ √(‖x_i‖² + 1) |y_i|: a cone program over all activation patterns finds it.",
    source="Theorem 4.1, Equation (3)",
    evidence="certificate",
)
def over_all_widths(factor=1.0) -> Verdict:
    data = ft.xor(n=6, d=3, seed=0, distinct=True)
    found = ft.flattest_network(ft.MLP(6, bias=True), data)
    least = equal(found.least, factor * 4 * np.sqrt(data.d + 1), 1e-8, "least trace, n = 6, d = 3")
    return provided(least, found.certificate)


@claim(
    "wen2023/all-widths/equation-3-exceeded",
    "Where inputs are not extreme, or without bias, the least trace may exceed the bound of "
    "Equation (3): by a proof over all activation patterns of seven normal inputs in three "
    "dimensions.",
    source="Theorem 4.1, Equation (3)",
    evidence="certificate",
)
def not_attained_inside() -> Verdict:
    found = _normal(bias=False)
    rows = found.rows
    simple = rows.unit * float(rows.lengths @ np.abs(rows.t))
    excess = at_least(found.bound / simple, 1.01, 0.0, "proven least trace over the simple bound")
    return provided(excess, found.certificate)


@claim(
    "wen2023/all-widths/theorem-3.1",
    "Without bias all flattest networks generalize, on xor with d = 30, n = 100, seed 0: the bound "
    "4√30 is approached, and only by networks of the four neurons ±x[1] ± x[2].",
    source="Theorem 3.1; Table 1, row 1",
    evidence="certificate",
    cost="full",
)
def theorem_3_1_on_a_draw(factor=1.0) -> Verdict:
    """Integer programs: no other label-pure face exists (see `flatness.convex.faces`)."""
    data = ft.Xor(D).draw(N, SEED)
    decided = ft.decide_faces(ft.MLP(4), data, four_neurons(D))
    bound = equal(decided.bound, factor * 4 * np.sqrt(D), 1e-9, "infimum of the trace")
    proven = equal(decided.outcome == "proven", 1.0, 0.0, decided.reason)
    return provided(bound, proven)


@claim(
    "wen2023/all-widths/theorem-3.1-threshold",
    "The bound 4√d of Theorem 3.1's argument is not always the infimum: on xor with "
    "d = 10, n = 50, seed 0 the four neurons cannot be pushed off their kinks, and no other "
    "label-pure face exists.",
    source="Theorem 3.1; Lemma A.12",
    evidence="certificate",
)
def beyond_the_threshold() -> Verdict:
    """See `flatness.convex.faces`; docs/question1.md has the threshold over n × d."""
    decided = ft.decide_faces(ft.MLP(4), ft.Xor(10).draw(50, SEED), four_neurons(10))
    return equal(decided.outcome == "not approached", 1.0, 0.0, decided.reason)
