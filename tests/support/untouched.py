"""Whether a module, and PyTorch, are left as they were."""

import torch


def snapshot(module):
    return (
        {name: t.clone() for name, t in module.state_dict().items()},
        {name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()},
        [(m.training, len(m._forward_hooks), len(m._backward_hooks)) for m in module.modules()],
        torch.get_rng_state().clone(),
        torch.get_default_dtype(),
        {p.device for p in module.parameters()},
    )


def assert_untouched(before, module):
    after = snapshot(module)
    for one, other in zip(before[:2], after[:2], strict=True):
        assert all(
            a is b is None or torch.equal(a, b)
            for a, b in zip(one.values(), other.values(), strict=True)
        )
    assert before[2] == after[2]
    assert torch.equal(before[3], after[3])
    assert before[4:] == after[4:]
