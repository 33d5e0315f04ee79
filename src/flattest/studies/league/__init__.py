"""The league: at equal certified flatness, which measure tells a memorizer from a generalizer?

The tables of its results are in docs/league.md.
"""
