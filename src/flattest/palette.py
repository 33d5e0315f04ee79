"""Okabe and Ito's colours, which everyone can tell apart, for the figures and the page."""

BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
RED = "#D55E00"
SKY = "#56B4E9"
PURPLE = "#CC79A7"
INK = "#333333"
