"""Appendix A.6.2: Rademacher complexity, exactly by enumeration of the signs."""

import itertools
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from scipy.optimize import nnls

from flattest.errors import FlattestError
from flattest.evidence import Verdict, equal
from flattest.flatness.bounds import linear_rademacher_bound, two_layer_rademacher_bound
from flattest.ledger.adversary import Family, Plan, universal
from flattest.ledger.claim import cite, claim
from flattest.problem.randomness import generator

for name, statement in {
    "lemma-a.20": "Massart: R_S(F) ≤ √(2 log|A|/n) for the set A of values of F on S.",
    "lemma-a.21": "Sauer: |A| ≤ Σ_{i ≤ VC(F)} C(n, i).",
    "corollary-a.1": "R_S(F) ≤ √(4 VC(F) log n/n), from Lemmas A.20 and A.21.",
    "lemma-a.22": "The VC dimension of half-spaces through the origin of R^d is d.",
    "lemma-a.23": "Uniform convergence within 2R_S + 3√(log(4/δ)/n) for functions into [0, 1].",
    "theorem-a.3": "Srebro et al. 2010: fast rates O(H log³n R_n² + b log(1/δ)/n) at zero loss.",
}.items():
    cite(f"wen2023/{name}", statement, source=name.replace("-", " ").title())


def all_signs(n: int) -> np.ndarray:
    """{−1, 1}^n, one row each."""
    return np.array(list(itertools.product([-1.0, 1.0], repeat=n)))


def linear_rademacher(x: np.ndarray) -> float:
    """R_S of x ↦ w·x, ‖w‖ ≤ 1: the mean of ‖Σ ε_i x_i‖/n over all signs."""
    return float(np.linalg.norm(all_signs(len(x)) @ x, axis=1).mean() / len(x))


POINT_SETS = ((4, 4), (6, 2), (5, 3))


def families(measure: Callable[[np.ndarray], float]) -> Iterator[Family]:
    """z = (x_1, …, x_n) in R^d; orthogonal points to begin at where there is room for them."""
    for n, d in POINT_SETS:

        def measured(z: np.ndarray, n: int = n, d: int = d) -> float:
            return measure(z.reshape(n, d))

        starts = (np.eye(n, d).ravel(),) if n <= d else ()
        yield Family(f"n = {n}, d = {d}", n * d, measured, starts)


@universal(
    "wen2023/lemma-a.25",
    "R_S ≤ C/√n for x ↦ w·x with ‖w‖ ≤ 1 on points with ‖x_i‖ ≤ C; orthogonal points attain it.",
    source="Lemma A.25",
    refuted_by="points whose R_S, by enumeration of all 2^n signs, exceeds max ‖x_i‖/√n",
    largest=1.0,
    attained=True,
    evaluations=900,
    evidence="proof",
)
def lemma_a25(factor=1.0) -> Plan:
    """Proof: R_S = E‖Σ ε_i x_i‖/n ≤ √(E‖Σ ε_i x_i‖²)/n = √(Σ‖x_i‖²)/n, by Jensen's inequality and
    E ε_i ε_j = 0."""
    yield from families(lambda x: linear_rademacher(x) / (factor * linear_rademacher_bound(x)))


@claim(
    "wen2023/lemma-a.25/jensen-as-printed",
    "In the proof, E‖Σ ε_i x_i‖ = √(Σ‖x_i‖²).",
    source="Lemma A.25, last line of the proof",
    evidence="enumeration",
    reading="as printed",
)
def jensen_as_printed() -> Verdict:
    x = np.ones((8, 3))
    return equal(len(x) * linear_rademacher(x), np.linalg.norm(x), 1e-9, "eight equal points")


@universal(
    "wen2023/lemma-a.25/jensen-corrected",
    "In the proof, E‖Σ ε_i x_i‖ ≤ √(Σ‖x_i‖²), by Jensen's inequality.",
    source="Lemma A.25, last line of the proof",
    refuted_by="points with a larger E‖Σ ε_i x_i‖, by enumeration of all 2^n signs",
    largest=1.0,
    attained=True,
    evaluations=900,
    evidence="proof",
    reading="as corrected",
)
def jensen_corrected(factor=1.0) -> Plan:
    """Proof: E‖Σ ε_i x_i‖² = Σ‖x_i‖², since E ε_i ε_j = 0 for i ≠ j."""
    yield from families(
        lambda x: len(x) * linear_rademacher(x) / (factor * float(np.linalg.norm(x)))
    )


def planar_relu_rademacher(x: np.ndarray) -> float:
    """R_S of 2-MLP-No-Bias with path norm ≤ 1 on points of the plane, exactly.

    It is (1/n) E max_u |Σ ε_i relu(u·x_i)| over unit u. On an arc between two of the angles at
    which some u·x_i = 0 the sum is u·v, largest in absolute value at ±v/‖v‖ or at an end.
    """
    angle = np.arctan2(x[:, 1], x[:, 0])
    ends = np.sort(np.unique(np.concatenate([angle + np.pi / 2, angle - np.pi / 2]) % (2 * np.pi)))
    middles = (ends + np.diff(ends, append=ends[0] + 2 * np.pi) / 2) % (2 * np.pi)
    signs = all_signs(len(x))
    best = np.abs(signs @ np.maximum(x @ unit_vectors(ends), 0)).max(axis=1)
    for middle in middles:
        active = (x @ unit_vectors(middle) > 0)[:, None]
        v = signs @ (x * active)
        top = np.arctan2(v[:, 1], v[:, 0])
        for candidate in (top, top + np.pi):
            features = np.maximum(x @ unit_vectors(candidate), 0)
            best = np.maximum(best, np.abs((signs * features.T).sum(axis=1)))
    return float(best.mean() / len(x))


def cube_relu_rademacher(x: np.ndarray) -> float:
    """R_S of 2-MLP-No-Bias with path norm ≤ 1 on points of {−1, 1}^d, d ≤ 4, exactly.

    It is (1/n) E max_u |Σ ε_i relu(u·x_i)| over unit u. On a cell of the arrangement of all the
    cube's hyperplanes the sum is u·v, at most the distance of v from the cell's polar cone, which
    non-negative least squares finds.
    """
    n, d = x.shape
    # Inside a cell walls·u > 0, and x_i or −x_i is one of the walls.
    active = [x * ((x @ walls.T).max(axis=1) == d)[:, None] for walls in cube_cells(d)]

    def largest(signs: np.ndarray) -> float:
        cells = zip(cube_cells(d), active, strict=True)
        vectors = ((walls, s * (signs @ points)) for walls, points in cells for s in (1, -1))
        return max(nnls(-walls.T, v)[1] for walls, v in vectors)

    # ε and −ε have the same maximum.
    return float(np.mean([largest(signs) for signs in all_signs(n)[: 2 ** (n - 1)]]) / n)


@cache
def cube_cells(d: int) -> list[np.ndarray]:
    """The cells of {u : u·x ≠ 0 for all x ∈ {−1, 1}^d} as the rows x with u·x > 0.

    They are the threshold functions of d − 1 variables, 4, 14 and 104 for d = 2, 3, 4; random u
    that find so many have found them all.
    """
    walls = all_signs(d)
    u = generator(0, "claims/cube cells", d).normal(size=(20_000, d))
    patterns = np.unique(u @ walls.T > 0, axis=0)
    if len(patterns) != {2: 4, 3: 14, 4: 104}[d]:
        raise FlattestError(f"{len(patterns)} cells of the cube's arrangement were found.")
    return [walls[pattern] for pattern in patterns]


def unit_vectors(angles: np.ndarray) -> np.ndarray:
    """(cos, sin), one column for each angle."""
    return np.stack([np.cos(angles), np.sin(angles)])


@universal(
    "wen2023/lemma-a.24",
    "R_S ≤ 2CB/√n for 2-MLP-No-Bias with Σ‖W1_j‖|W2_j| ≤ C on points with ‖x_i‖ ≤ B.",
    source="Lemma A.24",
    refuted_by="points of the plane, where the supremum is exact, with R_S·√n/(CB) > 2",
    largest=2.0,
    evaluations=300,
    evidence="proof",
)
def lemma_a24() -> Plan:
    """Proof: R_S = (C/n) E sup |Σ ε_i relu(u·x_i)| over ‖u‖ ≤ 1. At u = 0 the sum is 0, and −ε has
    the law of ε, so that it is at most (2C/n) E sup Σ ε_i relu(u·x_i), and relu, which is
    1-Lipschitz with relu(0) = 0, may be left out by contraction (Ledoux and Talagrand 1991, Theorem
    4.12). What is left is 2C times Lemma A.25's."""
    for n in (1, 3, 5):

        def ratio(z: np.ndarray, n: int = n) -> float:
            x = z.reshape(n, 2)
            return 2 * planar_relu_rademacher(x) / two_layer_rademacher_bound(x, 1.0)

        yield Family(f"{n} points of the plane", 2 * n, ratio)
