"""What a PyTorch module computes, seen in a run on a sample: is f affine in every single weight on
each linear piece, and which hidden units can be rescaled?

The module is run as it is, and every operation on tensors passes by (`module_walk`), whatever
Python code called it. A sample stands for all where nothing else can happen for another one: Python
code that looks at a tensor's value may branch by it, so `Seen` records those values, to be compared
on all the data.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from flattest.errors import first_line
from flattest.rescaling.module_rules import RULES
from flattest.rescaling.module_walk import Leaving, Walk
from flattest.rescaling.units import Structure


def structure_of(
    parameters: Mapping[str, torch.Tensor], x: Any, run: Callable[[Any], torch.Tensor]
) -> tuple[Structure, list[Any] | None]:
    """Walks run(x), x being one sample (a batch of one). Where the run looked at values that may be
    others for other samples, all that it looked at comes second: the structure is that of runs that
    see the same (`Seen`)."""
    walk = Walk(parameters, x, RULES)
    try:
        with torch.enable_grad(), Leaving(walk), walk:
            output = run(x)
    except Exception as error:  # Whatever a user's forward raises for a batch of one.
        walk.stopped = f"it fails on a batch of one ({first_line(error)})"
    else:
        walk.output(output)
    if walk.stopped:
        reason = walk.reason or walk.stopped
        return Structure(walk.stopped, exact=False, reason=reason, entries=walk.entries), None
    notes = tuple(dict.fromkeys(walk.notes))
    units = walk.finished()
    found = Structure(units.lost() or units, not walk.reason, walk.reason, notes, walk.entries)
    return found, walk.seen if walk.branches else None
