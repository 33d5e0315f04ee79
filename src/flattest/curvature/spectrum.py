"""The spectral density of ∇²L by stochastic Lanczos quadrature."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SpectralDensity:
    """Quadrature of the eigenvalue distribution: `probes` rows of nodes and weights, each row's
    weights summing to 1. `mean(g)` estimates (1/p) Σ_k g(λ_k)."""

    nodes: np.ndarray
    weights: np.ndarray
    size: int

    def mean(self, function) -> tuple[float, float]:
        """(1/p) Σ_k function(λ_k), with its standard error over the probes."""
        samples = (self.weights * function(self.nodes)).sum(axis=1)
        spread = samples.std(ddof=1) / np.sqrt(len(samples)) if len(samples) > 1 else np.nan
        return float(samples.mean()), float(spread)

    def density(self, grid: np.ndarray, width: float) -> np.ndarray:
        """The density on `grid`, smoothed with a Gaussian of standard deviation `width`."""
        distance = (np.asarray(grid, float)[:, None] - self.nodes.ravel()) / width
        bumps = np.exp(-0.5 * distance**2) / (width * np.sqrt(2 * np.pi))
        return bumps @ self.weights.ravel() / len(self.nodes)
