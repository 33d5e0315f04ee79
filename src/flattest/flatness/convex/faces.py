"""Is the simple bound the least trace, and are all flattest networks known? By integer programs.

ReLU networks, rows r_h with lengths ‖r_h‖ and targets t_h ≠ 0. With λ_h = sign(t_h) ‖r_h‖,
ρ_P = ‖λ_S‖ on a cell whose active rows are S, so that every neuron of sign s has s λ·h ≤ ρ_P ‖h‖,
and every network costs at least λ·t = Σ ‖r_h‖ |t_h|: the simple bound (wen2023, Eq. 3). Equality
holds, for the network and hence for each neuron, exactly where h is a multiple of sλ on S. Since
h ≥ 0, all labels on S have the sign s. So the neuron is, up to scale, a *label-pure face*:
  v·r_h = ‖r_h‖ on S,  v·r_h ≤ 0 elsewhere,  t_h of one sign on S ≠ ∅,
in the closure of the open cell of S: some direction takes all rows outside S with v·r_h = 0 (its
*kinks*) below 0 together. A network has the simple bound, up to limits, exactly if it consists of
such faces that *cover* the labels: Σ_{S∋h} α_S ‖r_h‖ = |t_h|, α ≥ 0; each sign of label apart.

*Dead directions.* Where some z ≠ 0 has z·r_h ≤ 0 on all rows, neurons along z cost nothing and say
anything off the data, whatever the least trace is: not all flattest networks generalize. Otherwise
Q = {v : v·r_h ≤ ‖r_h‖ on the label's rows, ≤ 0 on the others} is bounded, and linear programs give
M_h = max_Q −v·r_h/‖r_h‖, with which "in S or not" is a mixed-integer linear condition on (v, b): no
constant is guessed.

*Faces other than known ones.* A known neuron v₀ with rows S₀ is left out by cases:
- S ⊉ S₀ for every known neuron: Σ_{S₀} b ≤ |S₀| − 1;
- S ⊋ S₀ for one of them: b = 1 on S₀ and one more;
- S = S₀ with another v: these v form a convex set, so that v₀ is alone in it exactly if it is near
  v₀: no w ≠ 0 has w·r_h = 0 on S₀ and w·r_h ≤ 0 on the kinks of v₀.
Where there is none, every flattest network consists of known neurons. Where there are, the cover of
the labels with the greatest weight on others is a linear program whose columns are faces; an
integer program prices them. If that weight is 0 the others occur in no flattest network: prices π
of the rows with π·|t|/‖r‖ = 0, π·1_S ≥ 0 on known faces and > 0 on all others prove it.

Integer and linear programs are solved by HiGHS in float64, to 1e-6 and 1e-9.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from flattest.errors import FlattestError
from flattest.flatness.convex.certificate import SIGNS, shortest
from flattest.flatness.convex.rows import rows_of
from flattest.machine import later
from flattest.problem.data import Dataset
from flattest.problem.losses import Loss
from flattest.problem.models import MLP, Params

optimize = later("scipy.optimize")
TIGHT = 1e-7
# So many inputs of a known face are tried; the deepest decides, or the others rarely do.
TRIES = 3
REWEIGHTED = 5
MARGIN = 1.01
FITS = 1e-6
Status = Literal["found", "none", "unknown"]
Outcome = Literal["proven", "refuted", "open", "not approached"]


@dataclass(frozen=True)
class Decision:
    """Do all flattest networks consist of the known neurons, on this training set?

    `outcome`: "proven": the simple bound is approached, and by networks of the known neurons only.
    "refuted": by `params`, a limit of flattest networks with other neurons (whether it errs
    elsewhere is for a test set to say), or by the direction `dead`, along which neurons cost
    nothing, whatever the least trace is. "not approached": the least trace exceeds the simple
    bound. "open": not decided, `reason` says why. `others` is how many other faces were found,
    `weight` the greatest share of a label's outputs that they can carry. `above` is a trace that
    networks of the known neurons approach, NaN where these do not cover the labels: an upper bound
    on the least trace, where `bound` is a lower one.
    """

    outcome: Outcome
    reason: str
    bound: float
    others: int = 0
    weight: float = 0.0
    above: float = np.nan
    params: Params | None = field(default=None, repr=False)
    dead: np.ndarray | None = field(default=None, repr=False)


class Face(NamedTuple):
    """v (D,) with v·z_h = 1 on the rows S, and ≤ 0 elsewhere; z_h = r_h/‖r_h‖."""

    v: np.ndarray
    S: np.ndarray


def decide_faces(
    model: MLP, data: Dataset, known, loss: str | Loss = "mse", nodes: int = 20_000, faces: int = 20
) -> Decision:
    """Whether all flattest networks of `data` consist of the rows of `known` (m, d), inner weights
    up to scale (with bias, weights and bias). An integer program may take so many `nodes`, and a
    cover of the labels so many `faces` beyond the known ones."""
    rows = rows_of(model, data, loss)
    if rows.slopes != (0.0, 1.0) or not rows.t.all():
        raise FlattestError("Label-pure faces are for ReLU networks and labels other than 0.")
    lengths = np.linalg.norm(rows.given, axis=1)
    problem = _Faces(rows.given / lengths[:, None], np.sign(rows.t), nodes, faces)
    share = np.abs(rows.t) * rows.size / lengths
    neurons = np.asarray(known, float).reshape(-1, rows.given.shape[1])
    faces_known = [f for f in (_face(problem, w) for w in neurons) if f is not None]
    found = _decided(problem, share, faces_known)
    bound = rows.unit * float(rows.lengths @ np.abs(rows.t))
    above = rows.unit / rows.size / lengths.max() * _above(problem, share, faces_known, lengths)
    params = None if found.neurons is None else _network(found.neurons, model.bias, lengths.max())
    return Decision(
        found.outcome,
        found.reason,
        bound,
        found.others,
        found.weight,
        above,
        params,
        found.dead,
    )


def other_faces(model: MLP, data: Dataset, known, nodes: int = 20_000) -> Status:
    """Whether a label-pure face other than those of the `known` neurons exists, in the closure of
    an open cell or not: "found", "none", or "unknown" where so many `nodes` do not tell."""
    rows = rows_of(model, data)
    Z = rows.given / np.linalg.norm(rows.given, axis=1, keepdims=True)
    of = _Faces(Z, np.sign(rows.t), nodes, 0)
    neurons = np.asarray(known, float).reshape(-1, Z.shape[1])
    faces = [f for f in (_face(of, w) for w in neurons) if f is not None]
    statuses = set()
    for sign in SIGNS:
        statuses.add(_others(of, _of_label(of, faces, sign), sign)[0])
        if "found" in statuses:
            return "found"
    return "unknown" if "unknown" in statuses else "none"


def all_pushable(model: MLP, data: Dataset, known) -> bool:
    """Whether each of the `known` neurons is a label-pure face in the closure of an open cell."""
    rows = rows_of(model, data)
    Z = rows.given / np.linalg.norm(rows.given, axis=1, keepdims=True)
    of = _Faces(Z, np.sign(rows.t), 0, 0)
    faces = [_face(of, w) for w in np.asarray(known, float).reshape(-1, Z.shape[1])]
    return all(f is not None and pushable(Z, f) for f in faces)


class _Faces(NamedTuple):
    """Unit rows Z (k, D), the signs of their labels, and the limit of an integer program."""

    Z: np.ndarray
    signs: np.ndarray
    nodes: int
    faces: int


class _Found(NamedTuple):
    outcome: Outcome
    reason: str
    others: int = 0
    weight: float = 0.0
    neurons: list[tuple[float, np.ndarray]] | None = None
    dead: np.ndarray | None = None


def _decided(of: _Faces, share: np.ndarray, faces: list[Face]) -> _Found:
    dead = dead_direction(of.Z)
    if dead is not None:
        return _Found("refuted", "a half-space is free of training points", dead=dead)
    labels = {s: _label(of, share, _of_label(of, faces, s), s) for s in SIGNS}
    if all(label.proven for label in labels.values()):
        count = sum(len(label.others) for label in labels.values())
        return _Found(
            "proven", "every known neuron has an input that no other face contains", count
        )
    uncovered = [label.uncovered for label in labels.values() if label.uncovered is not None]
    if uncovered:
        reason = f"no label-pure face in an open cell contains input {min(uncovered)}"
        return _Found("not approached", reason)
    return _by_covers(of, share, faces, [f for label in labels.values() for f in label.others])


class _Label(NamedTuple):
    """What single inputs say of one label: `proven`, every cover consists of known neurons;
    `uncovered`, an input that no face contains; `others`, faces found on the way."""

    proven: bool
    uncovered: int | None
    others: list[Face]


def _label(of: _Faces, share: np.ndarray, known: list[Face], sign: float) -> _Label:
    """Inputs that a known face alone contains decide most labels: in every cover its weight is then
    the input's share, and where these weights use up all shares no other face has any. Where the
    face is not in the closure of an open cell, the input cannot be covered at all."""
    program, others, left = _Program.of(of, sign), [], share * (of.signs == sign)
    for face in known:
        usable = pushable(of.Z, face)
        h, found = _alone(of, program, known, face)
        others += found
        if h is not None and not usable:
            return _Label(False, h, others)
        other = _other_neuron(of, face) if usable else None
        others += [] if other is None else [other]
        if h is None and usable:
            halves = program.split(face)
            others += halves if all(pushable(of.Z, half) for half in halves) else []
        left = left - (0.0 if h is None or other is not None else share[h]) * face.S
    return _Label(bool(np.abs(left).max() <= 1e-9 * share.max()), None, others)


def _alone(
    of: _Faces, program: "_Program", known: list[Face], face: Face
) -> tuple[int | None, list[Face]]:
    """An input that of all faces in closures of open cells `face` alone may contain, of those that
    lie deepest in the polytope's other faces; None where none was found; and the others found."""
    count = np.sum([f.S for f in known], axis=0)
    rows = [h for h in program.deepest if face.S[h] and count[h] == 1]
    others: list[Face] = []
    for h in rows[:TRIES]:
        cuts = [face.S]
        while True:
            status, other = program.solve(through=h, cuts=cuts)
            if other is None or pushable(of.Z, other) or len(cuts) > of.faces:
                break
            cuts.append(other.S)
        if status == "none":
            return int(h), others
        others += [other] if other is not None and pushable(of.Z, other) else []
    return None, others


def _by_covers(of: _Faces, share, faces: list[Face], others: list[Face]) -> _Found:
    """Where single inputs do not decide: are there other faces, and do covers have them?"""
    usable = [f for f in faces if pushable(of.Z, f)]
    covered = [_cover(_of_label(of, usable, s), share, of.signs == s) is not None for s in SIGNS]
    if others:
        return _with_others(of, share, usable, others, all(covered))
    answers = [_others(of, _of_label(of, faces, s), s) for s in SIGNS]
    others = [f for _, found in answers for f in found]
    if others:
        return _with_others(of, share, usable, others, all(covered))
    if "unknown" in {status for status, _ in answers}:
        return _Found("open", "the integer programs ran out of nodes")
    if all(covered):
        return _Found("proven", "no other label-pure face exists")
    return _Found(
        "not approached",
        "known neurons cannot be pushed off their kinks, and no other label-pure face exists",
    )


def _of_label(of: _Faces, faces: list[Face], sign: float) -> list[Face]:
    return [f for f in faces if of.signs[f.S][0] == sign]


def _with_others(
    of: _Faces, share, usable: list[Face], others: list[Face], approached: bool
) -> _Found:
    """Which covers the other faces are part of."""
    covers = {
        s: _heaviest_cover(of, share, _of_label(of, usable, s), _of_label(of, others, s), s)
        for s in SIGNS
    }
    count = sum(len(c.faces) for c in covers.values()) - len(usable)
    final = all(c.final for c in covers.values())
    if any(c.alpha is None and c.final for c in covers.values()):
        return _Found("not approached", "label-pure faces do not cover the labels", count)
    if any(c.alpha is None for c in covers.values()):
        return _Found("open", "no cover by label-pure faces was found in time", count)
    weight = max(c.weight / share[of.signs == s].sum() for s, c in covers.items())
    if weight > 1e-6:
        network = [
            (s * a, f.v)
            for s, c in covers.items()
            for a, f in zip(np.asarray(c.alpha), c.faces, strict=True)
            if a > 1e-9
        ]
        outputs = sum(a * np.maximum(of.Z @ v, 0) for a, v in network)
        if np.abs(outputs - of.signs * share).max() > FITS * share.max():
            return _Found("open", "the network of other faces does not fit in float64", count)
        return _Found("refuted", "other label-pure faces cover labels", count, weight, network)
    if final and approached:
        return _Found("proven", "other label-pure faces exist, but no cover has them", count)
    return _Found("open", "other label-pure faces exist; a cover with them was not found", count)


def dead_direction(Z: np.ndarray) -> np.ndarray | None:
    """z ≠ 0 with Z z ≤ 0, None where there is none."""
    k, D = Z.shape
    if np.linalg.matrix_rank(Z) < D:
        return np.linalg.svd(Z)[2][-1]
    # All of z·z_h ≤ 0 and not all 0, unless z = 0.
    found = optimize.linprog(Z.sum(axis=0), A_ub=Z, b_ub=np.zeros(k), bounds=[(-1, 1)] * D)
    return found.x if found.fun < -TIGHT else None


def pushable(Z: np.ndarray, face: Face) -> bool:
    """Whether some direction takes all kinks of the face below 0 together."""
    kinks = Z[~face.S & (np.abs(Z @ face.v) <= TIGHT)]
    if not len(kinks):
        return True
    D = Z.shape[1]
    found = optimize.linprog(
        np.append(np.zeros(D), -1.0),
        A_ub=np.column_stack([kinks, np.ones(len(kinks))]),
        b_ub=np.zeros(len(kinks)),
        bounds=[(-1, 1)] * D + [(None, 1)],
    )
    return bool(-found.fun > TIGHT)


def _above(of: _Faces, share: np.ndarray, faces: list[Face], lengths: np.ndarray) -> float:
    """Σ α_S ρ ‖h‖ of a cover by known faces, each moved a little off its kinks: those that stay on
    the wrong side are active, with outputs that tend to 0 and their part of ρ. What the move
    changes in the outputs is made up for by neurons that span all, at a cost that tends to 0."""
    total = 0.0
    for sign in SIGNS:
        own = _of_label(of, faces, sign)
        alpha = _cover(own, share, of.signs == sign)
        if alpha is None:
            return np.nan
        sizes = [np.sum(lengths[f.S] ** 2) for f in own]
        left = [np.sum(lengths[kinks_left(of.Z, f)] ** 2) for f in own]
        total += float(sum(map(lambda a, s, q: a * np.sqrt(s * (s + q)), alpha, sizes, left)))
    return total


def kinks_left(Z: np.ndarray, face: Face) -> np.ndarray:
    """Kinks of the face that stay active where a small move takes as many others below 0 as linear
    programs find: the sum of what is missing, weighed anew in favour of those nearly there."""
    kinks = np.flatnonzero(~face.S & (np.abs(Z @ face.v) <= TIGHT))
    m, D = len(kinks), Z.shape[1]
    best, weights = kinks, np.ones(m)
    for _ in range(REWEIGHTED if m else 0):
        found = optimize.linprog(
            np.append(np.zeros(D), weights),
            A_ub=np.column_stack([Z[kinks], -np.eye(m)]),
            b_ub=-np.ones(m),
            bounds=[(None, None)] * D + [(0, None)] * m,
        )
        slack = found.x[D:]
        left = kinks[slack > 1 - TIGHT]
        best, weights = min(best, left, key=len), 1 / (slack + 0.1)
    return best


def _face(of: _Faces, w: np.ndarray) -> Face | None:
    """The face of a neuron, None where it is not a label-pure face of the data."""
    h = of.Z @ w
    S = h > TIGHT * max(1.0, np.abs(h).max())
    if not S.any() or len(np.unique(of.signs[S])) > 1:
        return None
    v = w / h[S].mean()
    return Face(v, S) if np.abs(of.Z[S] @ v - 1).max() <= TIGHT else None


def _others(of: _Faces, known: list[Face], sign: float) -> tuple[Status, list[Face]]:
    """Faces of one label other than the known ones: whether there is one, and one of each case."""
    program = _Program.of(of, sign)
    cases: list[tuple[list[Face], Face | None]] = [(known, None), *(([], f) for f in known)]
    statuses, found = set(), []
    for outside, beyond in cases:
        status, face = program.solve(outside=outside, beyond=beyond)
        statuses.add(status)
        found += [face] if face is not None else []
    for face in known:
        other = _other_neuron(of, face)
        found += [other] if other is not None else []
    if found:
        return "found", found
    return ("unknown" if "unknown" in statuses else "none"), found


def _other_neuron(of: _Faces, face: Face) -> Face | None:
    """Another v for the same S, None where v is the only one."""
    Z, D = of.Z, of.Z.shape[1]
    kinks = Z[~face.S & (np.abs(Z @ face.v) <= TIGHT)]
    fixed = Z[face.S]
    if np.linalg.matrix_rank(np.vstack([fixed, kinks])) < D:
        w = np.linalg.svd(np.vstack([fixed, kinks]))[2][-1]
    else:
        found = optimize.linprog(
            kinks.sum(axis=0),
            A_ub=kinks,
            b_ub=np.zeros(len(kinks)),
            A_eq=fixed,
            b_eq=np.zeros(len(fixed)),
            bounds=[(-1, 1)] * D,
        )
        if found.fun is None or found.fun > -TIGHT:
            return None
        w = found.x
    # As far as the other rows allow.
    rising = Z @ w
    free = ~face.S & (rising > TIGHT) & (Z @ face.v < -TIGHT)
    step = np.min(-(Z[free] @ face.v) / rising[free], initial=1.0)
    return Face(face.v + step * w, face.S)


class _Program(NamedTuple):
    """The mixed-integer program of one label's faces: (v, b) with b_h = 1 on S."""

    rows: _Faces
    own: np.ndarray
    depth: np.ndarray

    @classmethod
    def of(cls, of: _Faces, sign: float) -> "_Program":
        own = np.flatnonzero(of.signs == sign)
        high = np.where(of.signs == sign, 1.0, 0.0)
        free = [(None, None)] * of.Z.shape[1]
        depth = [
            -optimize.linprog(of.Z[h], A_ub=of.Z, b_ub=high, bounds=free, method="highs").fun
            for h in own
        ]
        return cls(of, own, np.array(depth) * MARGIN + TIGHT)

    @property
    def deepest(self) -> np.ndarray:
        """The label's rows, those first that v·z can leave farthest below 0."""
        return self.own[np.argsort(-self.depth, kind="stable")]

    def solve(
        self,
        worth=None,
        most: float = np.inf,
        outside=(),
        beyond: Face | None = None,
        cuts=(),
        through: int | None = None,
    ) -> tuple[Status, Face | None]:
        """A face with a small Σ worth·b, at most `most`. `outside`: not a superset of these faces;
        `beyond`: a proper superset of this one; `cuts`: S is none of these; `through`: S contains
        this row."""
        Z, D, m = self.rows.Z, self.rows.Z.shape[1], len(self.own)
        theirs = np.delete(Z, self.own, axis=0)
        mine, ones = Z[self.own], np.eye(m)
        rows = [
            (np.column_stack([theirs, np.zeros((len(theirs), m))]), -np.inf, 0.0),
            (np.column_stack([mine, -ones]), -np.inf, 0.0),
            (np.column_stack([mine, -(1 + self.depth) * ones]), -self.depth, np.inf),
            (np.append(np.zeros(D), np.ones(m))[None], 1.0, np.inf),
        ]
        low = (self.own == through).astype(float)
        for face in outside:
            inside = face.S[self.own].astype(float)
            rows.append((np.append(np.zeros(D), inside)[None], -np.inf, inside.sum() - 1))
        for S in cuts:
            inside = np.where(S[self.own], 1.0, -1.0)
            rows.append((np.append(np.zeros(D), inside)[None], -np.inf, S[self.own].sum() - 1))
        worth = np.append(np.zeros(D), np.zeros(m) if worth is None else worth)
        if most < np.inf:
            rows.append((worth[None], -np.inf, most))
        if beyond is not None:
            low = beyond.S[self.own].astype(float)
            rows.append((np.append(np.zeros(D), np.ones(m))[None], low.sum() + 1, np.inf))
        found = optimize.milp(
            worth,
            constraints=[optimize.LinearConstraint(*row) for row in rows],
            integrality=np.append(np.zeros(D), np.ones(m)),
            bounds=optimize.Bounds(
                np.append(np.full(D, -np.inf), low), np.append(np.full(D, np.inf), np.ones(m))
            ),
            # Any face that is good enough will do; only that there is none must be proven.
            options={"node_limit": self.rows.nodes, "mip_rel_gap": 10.0},
        )
        if found.x is not None:
            return "found", self._face(found.x)
        return ("none" if found.status == 2 else "unknown"), None

    def split(self, face: Face) -> list[Face]:
        """Two faces of which the given one is the disjoint union, none where there are none: then
        covers may have the two in its place. The row that is least deep is in the first."""
        Z, D = self.rows.Z, self.rows.Z.shape[1]
        S, rest = np.flatnonzero(face.S), np.flatnonzero(~face.S)
        m, depth = len(S), self.depth[np.isin(self.own, np.flatnonzero(face.S))]
        one, none = np.eye(m), np.zeros((m, D))
        outside, nothing = np.zeros((len(rest), D)), np.zeros((len(rest), m))
        rows = [
            (np.hstack([Z[rest], outside, nothing]), -np.inf, 0.0),
            (np.hstack([outside, Z[rest], nothing]), -np.inf, 0.0),
            (np.hstack([Z[S], none, -one]), -np.inf, 0.0),
            (np.hstack([Z[S], none, -(1 + depth) * one]), -depth, np.inf),
            (np.hstack([none, Z[S], one]), -np.inf, 1.0),
            (np.hstack([none, Z[S], (1 + depth) * one]), 1.0, np.inf),
            (np.append(np.zeros(2 * D), np.ones(m))[None], 1.0, m - 1.0),
        ]
        low = (np.arange(m) == np.argmin(depth)).astype(float)
        found = optimize.milp(
            np.zeros(2 * D + m),
            constraints=[optimize.LinearConstraint(*row) for row in rows],
            integrality=np.append(np.zeros(2 * D), np.ones(m)),
            bounds=optimize.Bounds(
                np.append(np.full(2 * D, -np.inf), low),
                np.append(np.full(2 * D, np.inf), np.ones(m)),
            ),
            options={"node_limit": self.rows.nodes},
        )
        if found.x is None:
            return []
        first = found.x[2 * D :] > 0.5
        halves = ((found.x[:D], S[first]), (found.x[D : 2 * D], S[~first]))
        return [self._polished(v, np.isin(np.arange(len(Z)), own)) for v, own in halves]

    def _face(self, x: np.ndarray) -> Face:
        """The face with S as the integer program found it."""
        D = self.rows.Z.shape[1]
        S = np.zeros(len(self.rows.Z), bool)
        S[self.own[x[D:] > 0.5]] = True
        return self._polished(x[:D], S)

    def _polished(self, v: np.ndarray, S: np.ndarray) -> Face:
        """The face of S, its v by least squares from the integer program's."""
        active = S | (np.abs(self.rows.Z @ v) <= 1e-6)
        miss = S[active].astype(float) - self.rows.Z[active] @ v
        return Face(v + np.linalg.lstsq(self.rows.Z[active], miss)[0], S)


def _cover(faces: list[Face], share: np.ndarray, own: np.ndarray) -> np.ndarray | None:
    """α ≥ 0 with Σ_{S∋h} α_S = share_h on the label's rows, None where there is none."""
    if not faces:
        return None
    A = np.array([f.S[own] for f in faces], float).T
    alpha, miss = optimize.nnls(A, share[own])
    return alpha if miss <= 1e-9 * share.max() else None


class _Cover(NamedTuple):
    """Weights α of faces, of which the first are known; None where no cover was found. `final`: no
    other face could change that: add to the weight on others, or give them any."""

    faces: list[Face]
    alpha: np.ndarray | None
    weight: float
    final: bool


def _heaviest_cover(
    of: _Faces, share, known: list[Face], others: list[Face], sign: float
) -> _Cover:
    """The cover of one label with the greatest weight on others: first a cover at all, then the
    heaviest, an integer program giving the face that would help most, until none does."""
    own, program = of.signs == sign, _Program.of(of, sign)
    others = [f for f in others if pushable(of.Z, f)]
    cuts: list[np.ndarray] = [f.S for f in (*known, *others)]
    while True:
        step = _weighed([*known, *others], len(known), share, own)
        status, face = program.solve(step.prices, step.threshold, cuts=cuts)
        if face is None or len(cuts) > len(known) + of.faces:
            return _Cover([*known, *others], step.alpha, step.weight, status == "none")
        cuts.append(face.S)
        others += [face] if pushable(of.Z, face) else []


class _Step(NamedTuple):
    """A linear program over faces: α (None where they do not cover), the weight on others, and
    prices π of the rows: only an other face with π·1_S at most the threshold may improve it."""

    alpha: np.ndarray | None
    weight: float
    prices: np.ndarray
    threshold: float


def _weighed(faces: list[Face], known: int, share: np.ndarray, own: np.ndarray) -> _Step:
    """Least Σ of what is not covered; where that is 0, the greatest weight on others; where that is
    0, too, prices that prove it for every face whose price is positive."""
    m = int(own.sum())
    A = np.array([f.S[own] for f in faces], float).reshape(-1, m).T
    none, all_ = np.zeros(len(faces)), np.column_stack([A, np.eye(m)])
    covered = optimize.linprog(np.append(none, np.ones(m)), A_eq=all_, b_eq=share[own])
    if covered.fun > 1e-9 * share.max():
        return _Step(None, 0.0, -covered.eqlin.marginals, -1e-6)
    worth = np.concatenate([np.zeros(known), np.ones(len(faces) - known)])
    found = optimize.linprog(-worth, A_eq=A, b_eq=share[own])
    weight = float(worth @ found.x)
    prices = _dividing_prices(A.T, worth, share[own]) if weight <= 1e-9 * share.max() else None
    if prices is None:
        return _Step(found.x, weight, -found.eqlin.marginals, 1 - 1e-6)
    return _Step(found.x, 0.0, prices, 0.5)


def greatest_weight(Z: np.ndarray, own: np.ndarray, known, found: list[Face]) -> float | None:
    """The greatest share of equal labels that other faces than those of the `known` neurons, of
    those `found` and in closures of open cells, carry in a cover; None where there is no cover."""
    of = _Faces(Z, np.where(own, 1.0, -1.0), 0, 0)
    faces = [f for f in (_face(of, w) for w in known) if f is not None and own[f.S].all()]
    usable = [f for f in faces if pushable(Z, f)]
    sets = {f.S.tobytes() for f in faces}
    others = [f for f in found if f.S.tobytes() not in sets and pushable(Z, f)]
    step = _weighed([*usable, *others], len(usable), np.ones(len(Z)), own)
    return None if step.alpha is None else step.weight / own.sum()


def _dividing_prices(faces: np.ndarray, worth: np.ndarray, share: np.ndarray) -> np.ndarray | None:
    """The shortest prices π with π·share = 0, π·1_S ≥ 0 on known faces and ≥ 1 on others: since
    0 = π·share = Σ_S α_S π·1_S in every cover, faces of a positive price have no weight in any. The
    shortest leave the most room to faces that are not in the list. None where they were not found.
    """
    conditions, least = np.vstack([faces, share, -share]), np.append(worth, [0.0, 0.0])
    prices = shortest(conditions, least)
    return prices if (conditions @ prices >= least - 1e-7).all() else None


def _network(neurons: list[tuple[float, np.ndarray]], bias: bool, length: float) -> Params:
    """Outer weights and inner weights of faces, rescaled by the length of the inputs."""
    outer, inner = (np.array(part) for part in zip(*neurons, strict=True))
    b = np.sqrt(np.abs(outer) * length)
    w = b[:, None] * inner
    first = {"W1": w[:, :-1], "b1": w[:, -1]} if bias else {"W1": w}
    return first | {"W2": outer / b}
