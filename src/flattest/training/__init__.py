"""Training: algorithms as phases, one signature, two engines."""
