"""The source papers, a folder each: experiments, figures, constructions, claims."""
