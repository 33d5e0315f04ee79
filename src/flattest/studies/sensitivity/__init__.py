"""What wen2023 leaves open: how 1-SAM's error depends on initialization, sampling, ρ and width

The tables of its results are in docs/wen2023.md.
"""
