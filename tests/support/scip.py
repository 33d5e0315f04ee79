"""Mixed-integer programs by SCIP, a solver of others, in the words of `scipy.optimize.milp`."""

import numpy as np


def status(c, constraints, integrality, bounds) -> str:
    """What SCIP says of the program: "infeasible", "optimal", …."""
    from pyscipopt import Model, quicksum

    model = Model()
    model.hideOutput()
    x = [
        model.addVar(vtype="B" if whole else "C", lb=_finite(low), ub=_finite(high))
        for whole, low, high in zip(integrality, bounds.lb, bounds.ub, strict=True)
    ]
    for constraint in constraints:
        A = np.atleast_2d(constraint.A)
        sides = (np.broadcast_to(side, len(A)) for side in (constraint.lb, constraint.ub))
        for row, low, high in zip(A, *sides, strict=True):
            total = quicksum(float(row[j]) * x[j] for j in np.flatnonzero(row))
            if np.isfinite(low):
                model.addCons(total >= float(low))
            if np.isfinite(high):
                model.addCons(total <= float(high))
    model.setObjective(quicksum(float(c[j]) * x[j] for j in np.flatnonzero(c)))
    model.optimize()
    return model.getStatus()


def _finite(bound):
    return float(bound) if np.isfinite(bound) else None
