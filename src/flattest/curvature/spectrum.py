"""The spectral density of ∇²L by stochastic Lanczos quadrature."""

from dataclasses import dataclass

import numpy as np

from flattest.curvature import lanczos
from flattest.curvature.operator import Operator
from flattest.curvature.progress import progress
from flattest.curvature.result import Interrupted
from flattest.machine import require_memory
from flattest.problem.checks import check_count
from flattest.problem.data import standard_error
from flattest.problem.randomness import generator


@dataclass(frozen=True)
class SpectralDensity:
    """Quadrature of the eigenvalue distribution: `probes` rows of nodes and weights, each row's
    weights summing to 1. `mean(g)` estimates (1/p) Σ_k g(λ_k). `partial`: Ctrl-C left it with fewer
    probes than were asked for."""

    nodes: np.ndarray
    weights: np.ndarray
    size: int
    partial: bool = False

    def mean(self, function) -> tuple[float, float]:
        """(1/p) Σ_k function(λ_k), with its standard error over the probes."""
        samples = (self.weights * function(self.nodes)).sum(axis=1)
        return float(samples.mean()), standard_error(samples)

    def density(self, grid: np.ndarray, width: float) -> np.ndarray:
        """The density on `grid`, smoothed with a Gaussian of standard deviation `width`."""
        distance = (np.asarray(grid, float)[:, None] - self.nodes.ravel()) / width
        bumps = np.exp(-0.5 * distance**2) / (width * np.sqrt(2 * np.pi))
        return bumps @ self.weights.ravel() / len(self.nodes)


def spectrum(op: Operator, probes: int = 8, steps: int = 64, seed: int = 0) -> SpectralDensity:
    """The density of ∇²L's eigenvalues (Ubaru et al. 2017): `probes` random signs, `steps`
    products with each."""
    probes, steps = check_count("probes", probes), check_count("steps", steps)
    longest = min(steps, op.size)
    require_memory(longest * (2.0 * probes + longest), f"A spectrum of {probes} probes")
    rng = generator(seed, "sharpness/spectrum")
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    try:
        with progress("probes of the spectrum", probes) as done:
            for _ in range(probes):
                signs = rng.choice([-1.0, 1.0], op.size)
                rows.append(lanczos.quadrature(op.matmat, signs, steps, rng))
                done()
    except KeyboardInterrupt:
        if len(rows) < 2:
            raise
        raise Interrupted(_density(rows, op.size, partial=True)) from None
    return _density(rows, op.size)


def _density(
    rows: list[tuple[np.ndarray, np.ndarray]], size: int, partial: bool = False
) -> SpectralDensity:
    longest = max(len(nodes) for nodes, _ in rows)
    # Rows that ended early are padded with their last node, with weight 0.
    nodes = np.array([np.pad(row, (0, longest - len(row)), mode="edge") for row, _ in rows])
    weights = np.array([np.pad(row, (0, longest - len(row))) for _, row in rows])
    return SpectralDensity(nodes, weights, size, partial)
