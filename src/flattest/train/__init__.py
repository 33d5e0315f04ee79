"""Training: one signature, two engines."""

from flattest.train.log import MEASURES, Log
from flattest.train.run import Progress, Run, train, train_many

__all__ = ["MEASURES", "Log", "Progress", "Run", "train", "train_many"]
