"""How many badly scaled programs of `flattest_interpolator` come back certified.

    python benchmarks/hard_interpolators.py          about a minute

Φ is 20 × 50 and normal, then made hard in one way; 50 draws a line, p = 1, 4/3 and 2. Why not:
"rounding" where no a in float64 can meet the labels (the terms of Φa exceed them by so much), "gap"
elsewhere.
"""

import collections

import numpy as np

import flattest as ft

N, M, DRAWS = 20, 50, 50


def repeated(rng):
    """A row twice, its label off by 1e-6: infeasible."""
    phi, y = rng.normal(size=(N, M)), rng.normal(size=N)
    phi[-1], y[-1] = phi[0], y[0] + 1e-6
    return phi, y, None


def near(distance):
    """Two rows that differ by this much, with labels that differ as much."""

    def problem(rng):
        phi, a = rng.normal(size=(N, M)), rng.normal(size=M)
        phi[-1] = phi[0] + distance * rng.normal(size=M)
        return phi, phi @ a, None

    return problem


def near_with_other_labels(rng):
    """Two rows 1e-6 apart whose labels have nothing to do with each other."""
    phi, y = rng.normal(size=(N, M)), rng.normal(size=N)
    phi[-1] = phi[0] + 1e-6 * rng.normal(size=M)
    return phi, y, None


def columns(rng):
    """Columns that span 1e±8."""
    return rng.normal(size=(N, M)) * 10 ** rng.uniform(-8, 8, M), rng.normal(size=N), None


def weights(rng):
    """Weights that span 1e±8."""
    return rng.normal(size=(N, M)), rng.normal(size=N), 10 ** rng.uniform(-8, 8, M)


def rows(rng):
    """Rows that span 1e±8, labels with them."""
    scale = 10 ** rng.uniform(-8, 8, N)
    return rng.normal(size=(N, M)) * scale[:, None], rng.normal(size=N) * scale, None


CASES = {
    "a row twice, label off by 1e-6": repeated,
    "rows 1e-6 apart": near(1e-6),
    "rows 1e-10 apart": near(1e-10),
    "rows 1e-6 apart, other labels": near_with_other_labels,
    "columns over 1e±8": columns,
    "weights over 1e±8": weights,
    "rows and labels over 1e±8": rows,
}


def outcome(found: ft.Interpolator) -> str:
    if found.status != "ill-conditioned":
        return found.status
    return "not: rounding" if "rounding alone" in found.message else "not: gap"


def main() -> None:
    print(f"{'problem':<34}" + "".join(f"{f'p = {p:.3g}':<44}" for p in (1, 4 / 3, 2)))
    for name, problem in CASES.items():
        line = f"{name:<34}"
        for p in (1.0, 4 / 3, 2.0):
            ends = collections.Counter(
                outcome(ft.flattest_interpolator(phi, y, p, weights))
                for phi, y, weights in (problem(np.random.default_rng(s)) for s in range(DRAWS))
            )
            line += f"{', '.join(f'{n} {what}' for what, n in ends.most_common()):<44}"
        print(line.rstrip(), flush=True)


if __name__ == "__main__":
    main()
