"""Pictures compared with those that are committed."""

import matplotlib.image
import numpy as np

from flattest.report.figure import save


def difference(kept, drawn) -> float:
    """The share of pixels that differ by more than an eighth of the scale, 1 where the sizes
    differ: fonts and the last digits of training may move a line by a hair."""
    kept, drawn = matplotlib.image.imread(kept), matplotlib.image.imread(drawn)
    if kept.shape != drawn.shape:
        return 1.0
    return float((np.abs(kept - drawn).max(axis=-1) > 1 / 8).mean())


def differing(drawn, kept, folder) -> float:
    """That share of a figure and the picture on disk that it should be."""
    return difference(kept, save(drawn, folder, "drawn")[0])
