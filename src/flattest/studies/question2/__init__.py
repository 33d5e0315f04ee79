"""Question 2: what in 1-SAM memorizes? Its steps without crossing kinks, and flows of the sharpness

The tables of its results are in docs/question2.md.
"""
