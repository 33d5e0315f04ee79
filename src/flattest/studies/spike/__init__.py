"""Spike networks: does 1-SAM stay at a flattest network that is wrong off the training set?

The tables of its results are in docs/wen2023.md.
"""
