"""PyTorch networks with data and a loss, and their dense ∇²L.

A test module that imports from here is skipped where PyTorch is missing.
"""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
pytest.importorskip("jax")  # Its import draws from NumPy's random numbers.
nn, F = torch.nn, torch.nn.functional
MARKS = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """At these sizes threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)
        self.up, self.down = nn.Linear(6, 5), nn.Linear(5, 6)

    def forward(self, x):
        h = F.relu(self.first(x))
        out = self.down(F.leaky_relu(self.up(h), 0.1))
        out += h
        return self.last(torch.relu(out))


class Convolutional(nn.Module):
    """Groups, strides, batch norm, both kinds of pooling, in-place activations, a flatten."""

    def __init__(self):
        super().__init__()
        self.c1, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.c2 = nn.Conv2d(4, 6, 2, groups=2, stride=(2, 1))
        self.last = nn.Linear(24, 3)
        with torch.no_grad():
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)
            self.norm.weight.normal_()

    def forward(self, x):
        h = F.avg_pool2d(F.relu(self.norm(self.c1(x)), inplace=True), 2)
        h = F.max_pool2d(self.c2(h).relu_(), (1, 2), stride=1)
        return self.last(h.view(h.size(0), -1))


def mlp(*widths, activation=nn.ReLU):
    layers = [
        part
        for a, b in zip(widths[:-1], widths[1:], strict=True)
        for part in (nn.Linear(a, b), activation())
    ]
    return nn.Sequential(*layers[:-1])


def one_activation():
    """ReLU6 is not homogeneous: no unit before it can be rescaled."""
    bounded = nn.ReLU6()
    module = mlp(4, 5, 5, 5, 1)
    module[3] = module[5] = bounded
    with torch.no_grad():
        for p in module.parameters():
            p *= 5
    return module


def image_case(n=10):
    return Convolutional().eval(), torch.randn(n, 1, 8, 8), torch.randint(0, 3, (n,))


def vector_case(module, outputs=1, n=12):
    return module, torch.randn(n, 4), torch.randn(n, outputs)


NETWORKS = {
    "4-layer": lambda: (*vector_case(mlp(4, 6, 6, 5, 1)), nn.MSELoss()),
    "residual": lambda: (*vector_case(Residual(), 2), nn.MSELoss()),
    "convolutional": lambda: (*image_case(), nn.CrossEntropyLoss(label_smoothing=0.1)),
    "sequence": lambda: (
        nn.Sequential(nn.Conv1d(2, 4, 3, padding="same", padding_mode="circular", dilation=2))
        .append(nn.ReLU(inplace=True))
        .append(nn.AdaptiveAvgPool1d(3))
        .append(nn.Linear(3, 2, bias=True))
        .append(nn.Flatten())
        .append(nn.Linear(8, 2)),
        torch.randn(7, 2, 9),
        torch.rand(7, 2),
        nn.BCEWithLogitsLoss(),
    ),
    "one activation for all": lambda: (*vector_case(one_activation()), nn.MSELoss()),
    "soft labels": lambda: (
        *vector_case(mlp(4, 5, 3))[:2],
        torch.rand(12, 3),
        nn.CrossEntropyLoss(label_smoothing=0.1),
    ),
}


def case(name, networks=NETWORKS):
    torch.manual_seed(0)
    module, x, y, loss = networks[name]()
    return module.double(), x.double(), y.double() if y.is_floating_point() else y, loss


def dense_hessian(module, x, y, loss) -> np.ndarray:
    """∇²L by differentiating twice in reverse, parameters in the module's order."""
    theta = dict(module.named_parameters())
    sizes = [p.numel() for p in theta.values()]

    def value(v):
        parts = zip(theta.items(), torch.split(v, sizes), strict=True)
        tree = {name: part.reshape(p.shape) for (name, p), part in parts}
        return loss(torch.func.functional_call(module, tree, (x,)), y)

    start = torch.cat([p.detach().reshape(-1) for p in theta.values()])
    return torch.autograd.functional.hessian(value, start).numpy()


def state(module):
    """All that must not change: parameters, gradients, buffers, their types and devices, modes,
    hooks, and PyTorch's own state."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    hooks = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
    return {
        "values": {name: t.detach().clone() for name, t in tensors.items()},
        "kinds": {n: (t.dtype, t.device, t.requires_grad, id(t)) for n, t in tensors.items()},
        "gradients": {n: p.grad for n, p in module.named_parameters()},
        "modes": {name: m.training for name, m in module.named_modules()},
        "hooks": {n: [[*getattr(m, h)] for h in hooks] for n, m in module.named_modules()},
        "random": torch.random.get_rng_state(),
        "others' random": (random.getstate(), np.random.get_state()[1].tobytes()),
        "default": (torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()),
    }


def assert_unharmed(module, before):
    after = state(module)
    assert torch.equal(before.pop("random"), after.pop("random"))
    values = before.pop("values")
    assert all(torch.equal(values[name], t) for name, t in after.pop("values").items())
    gradients, now = before.pop("gradients"), after.pop("gradients")
    assert all(gradients[name] is now[name] for name in gradients)
    assert before == after
