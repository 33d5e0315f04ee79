"""Appendix A.6.3: the two elementary inequalities."""

import itertools

import numpy as np

from flattest.evidence import Verdict, equal
from flattest.ledger.claim import claim, provided
from flattest.problem.randomness import generator


def relu(t):
    return np.maximum(t, 0)


@claim(
    "wen2023/lemma-a.26",
    "|relu(x)² − relu(y)²| ≤ (|x| + |y|)|x − y| for all real x, y, with equality for x, y ≥ 0.",
    source="Lemma A.26",
    evidence="inequality",
)
def lemma_a26(factor=1.0) -> Verdict:
    rng = generator(0, "claims/lemma-a.26")
    x, y = rng.normal(size=(2, 100_000)) * 10.0 ** rng.integers(-3, 4, (2, 100_000))
    ratio = np.abs(relu(x) ** 2 - relu(y) ** 2) / ((np.abs(x) + np.abs(y)) * np.abs(x - y))
    return equal(ratio.max(), factor, 1e-9, "the largest ratio of the two sides; 1 is attained")


@claim(
    "wen2023/lemma-a.27",
    "If a + d = b + c, (relu a + relu d − relu b − relu c)² is at most the sum of the four squares "
    "relu(·)², with equality iff three of the four are not positive.",
    source="Lemma A.27",
    evidence="enumeration",
)
def lemma_a27(factor=1.0) -> Verdict:
    a, b, c = np.array(list(itertools.product(range(-12, 13), repeat=3))).T
    four = np.array([a, b + c - a, b, c])
    left = (relu(four[0]) + relu(four[1]) - relu(four[2]) - relu(four[3])) ** 2
    right = (relu(four) ** 2).sum(axis=0)
    ratio = (left[right > 0] / right[right > 0]).max()
    misjudged = np.sum((left == right) != ((four <= 0).sum(axis=0) >= 3))
    note = "all integers −12 ≤ a, b, c ≤ 12, exactly; all four not positive counts as equality"
    return provided(equal(ratio, factor, 1e-12, note), equal(misjudged, 0, 0.0, note))
