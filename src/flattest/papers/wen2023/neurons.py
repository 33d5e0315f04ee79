"""The neurons that Figure 2b lists."""

import numpy as np


def largest_neurons(W1: np.ndarray, count: int = 4) -> np.ndarray:
    """Rows (W1[1], W1[2], ‖W1[3:d]‖) of the neurons of largest norm, largest first."""
    largest = W1[np.argsort(-np.linalg.norm(W1, axis=1))[:count]]
    return np.column_stack([largest[:, :2], np.linalg.norm(largest[:, 2:], axis=1)])
