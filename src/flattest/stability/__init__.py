"""Minima stability in function space (mulayoff2021): g, ∫|f″|g, thresholds, modes."""
