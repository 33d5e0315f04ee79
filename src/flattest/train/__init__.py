"""Training: one signature, two engines."""
