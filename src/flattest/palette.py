"""Okabe and Ito's palette, which colour-blind readers can tell apart, and the ink of texts."""

ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
BLUE = "#0072B2"
RED = "#D55E00"  # vermillion
PURPLE = "#CC79A7"
INK = "#333333"
