"""Question 1 of wen2023, decided: do all flattest networks without bias generalize, by n and d?

The tables of its results are in docs/question1.md.
"""
