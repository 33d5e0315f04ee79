"""Question 1 for two-layer networks, as a convex program over activation patterns."""
