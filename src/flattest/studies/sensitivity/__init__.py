"""What wen2023 leaves open: how 1-SAM's error depends on initialization, sampling, ρ and width"""
