"""What both engines, loop (JAX) and fused (Numba), offer: two functions of the same signature.

supports(model, loss, phase) -> None where the engine covers the combination, else one sentence.

advance(model, data, loss, phase, params, *, seed, first_epoch, epochs, first_step) -> Advance
trains `epochs` whole epochs. `first_epoch` counts epochs since the start of the run (the sample
order and the label noise are functions of (seed, epoch)); `first_step` counts the steps this
phase has done, for the warm-up η_t = η · min(1, (t + 1)/warmup), t = first_step, … . An epoch
has ⌈n/batch⌉ steps; the last batch holds what is left, and a batch's loss is its mean. The result
is a function of the parameters at `first_epoch` alone, bit for bit, wherever a run is cut.

The step is θ ← θ − η(∇ℓ_B(θ + ε) + λθ), ε = ρ g/‖g‖ or ρ g over all parameters, g = ∇ℓ_B(θ),
ε = 0 where g = 0; the weight decay λ is the gradient of (λ/2)‖θ‖², outside the perturbation.
With micro-batches (m-SAM) every micro-batch of B has its own ε, and ∇ℓ_B(θ + ε) is the mean over
B of the samples' gradients, each at its micro-batch's ε; the last holds what is left.
Label noise replaces y by y + δ·(±1) at every draw. The projection onto ‖(W1, b1)‖ ≤ radius comes
last.
"""

from typing import NamedTuple

import numpy as np


class Advance(NamedTuple):
    """Parameters (new arrays, of the type given) after `steps` steps.

    `diverged_at` is the number of the first step, 1, 2, … within the call, whose loss or result is
    not finite, None if there is none; `steps` are the steps done before it.
    """

    params: dict[str, np.ndarray]
    steps: int
    diverged_at: int | None
