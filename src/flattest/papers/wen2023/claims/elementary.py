"""Appendix A.6.3: the two elementary inequalities."""

import itertools

import numpy as np

from flattest.evidence import equal
from flattest.ledger.adversary import Family, Plan, universal


def relu(t):
    return np.maximum(t, 0)


@universal(
    "wen2023/lemma-a.26",
    "|relu(x)² − relu(y)²| ≤ (|x| + |y|)|x − y| for all real x, y, with equality for x, y ≥ 0.",
    source="Lemma A.26",
    refuted_by="two reals with a larger left side",
    largest=1.0,
    attained=True,
    evidence="proof",
)
def lemma_a26(factor=1.0) -> Plan:
    """Proof: the left side is |relu(x) − relu(y)|(relu(x) + relu(y)), and relu is 1-Lipschitz and
    at most the absolute value."""

    def ratio(z: np.ndarray) -> float:
        x, y = z
        # Nearer than this the difference of squares is rounding.
        if abs(x - y) < 1e-6 * (abs(x) + abs(y)):
            return np.nan
        return abs(relu(x) ** 2 - relu(y) ** 2) / (factor * (abs(x) + abs(y)) * abs(x - y))

    yield Family("x, y", 2, ratio)


@universal(
    "wen2023/lemma-a.27",
    "If a + d = b + c, (relu a + relu d − relu b − relu c)² is at most the sum of the four squares "
    "relu(·)², with equality iff three of the four are not positive.",
    source="Lemma A.27",
    refuted_by="three reals a, b, c with a larger left side",
    largest=1.0,
    attained=True,
    evidence="proof",
)
def lemma_a27(factor=1.0) -> Plan:
    """Proof: write A = relu(a) and so on; by symmetry A + D ≥ B + C. If a and d are positive,
    A + D = b + c ≤ B + C, so that the left side is 0 and the right one is not. If only a is,
    0 ≤ A − B − C ≤ A, so that the left side is at most A², which is the right side where b and c
    are not positive, and less otherwise. If neither is, all four are 0.

    Equality is judged exactly for all integers from −12 to 12; four that are not positive count."""

    def sides(a, b, c) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        four = np.array([a, b + c - a, b, c])
        left = (relu(four[0]) + relu(four[1]) - relu(four[2]) - relu(four[3])) ** 2
        return four, left, (relu(four) ** 2).sum(axis=0)

    def ratio(z: np.ndarray) -> float:
        _, left, right = sides(*z)
        return float(left / (factor * right)) if right > 0 else np.nan

    four, left, right = sides(*np.array(list(itertools.product(range(-12, 13), repeat=3))).T)
    misjudged = np.sum((left == right) != ((four <= 0).sum(axis=0) >= 3))
    yield equal(misjudged, 0, 0.0, "integers for which equality is misjudged")
    yield Family("a, b, c", 3, ratio)
