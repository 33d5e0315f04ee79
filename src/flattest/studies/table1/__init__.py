"""Table 1 of wen2023: four architectures, two questions each

The tables of its results are in docs/wen2023.md.
"""
