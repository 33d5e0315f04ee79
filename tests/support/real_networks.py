"""Networks as practitioners have them, each with data, a loss and a dense reference of ∇²L.

`python -m support.real_networks` (with tests on the path) writes docs/networks.md.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flattest as ft
from support.modules import Convolutional, F, Residual, mlp, nn, torch

from flattest.curvature.module_runs import exactly  # isort: skip

N = 6


@dataclass(frozen=True)
class Torch:
    """A module, its batch (inputs and targets), its loss, and what its outputs are. `twin`: a
    module with the same parameters whose second derivatives PyTorch has right; `loss_twin` a loss
    likewise."""

    module: nn.Module
    x: Any
    y: torch.Tensor
    loss: Any = nn.MSELoss()
    forward: Callable | None = None
    twin: nn.Module | None = None
    loss_twin: Any = None

    @property
    def batch(self):
        if isinstance(self.x, dict):
            return {**self.x, "labels": self.y}
        return (*self.x, self.y) if isinstance(self.x, tuple) else (self.x, self.y)

    def measured(self):
        return ft.torch.measure(self.module, self.batch, self.loss, forward=self.forward)

    def outputs(self, module=None):
        module, x = self._doubled(module)
        with torch.no_grad():
            return np.asarray(self._called(module, x))

    def _doubled(self, module):
        module = copy.deepcopy(getattr(module or self.module, "_orig_mod", module or self.module))
        double = lambda t: t.double() if t.is_floating_point() else t  # noqa: E731
        return module.double(), torch.utils._pytree.tree_map(double, self.x)

    def _called(self, module, x):
        if self.forward is not None:
            f = self.forward(module, x)
        elif isinstance(x, dict):
            f = module(**x)
        else:
            f = module(*x) if isinstance(x, tuple) else module(x)
        return getattr(f, "logits", f)

    def hessian(self, module=None) -> np.ndarray:
        """∇²L by differentiating a vector of all parameters twice."""
        module, x = self._doubled(module or self.twin)
        y = self.y.double() if self.y.is_floating_point() else self.y
        loss = self.loss_twin or self.loss
        theta = {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}
        sizes = [p.numel() for p in theta.values()]

        def value(v):
            parts = zip(theta.items(), v.split(sizes), strict=True)
            tree = {name: part.reshape(p.shape) for (name, p), part in parts}
            with torch.nn.utils.stateless._reparametrize_module(module, tree, tie_weights=True):
                f = self._called(module, x)
            return loss(f.reshape(y.shape) if f.numel() == y.numel() else f, y)

        start = torch.cat([p.reshape(-1) for p in theta.values()])
        # The casts to float32 inside of vision and language models are taken out, as documented.
        with exactly():
            return torch.autograd.functional.hessian(value, start).numpy()


@dataclass(frozen=True)
class Jax:
    """A function of a tree (or a module that holds its own, with None), data and loss; `value` is
    L as a function of the tree of parameters `theta` alone."""

    function: Any
    params: Any
    x: Any
    y: Any
    loss: Any
    value: Callable
    theta: Any
    applied: Callable

    def measured(self):
        return ft.measure(self.function, self.params, (self.x, self.y), self.loss)

    def outputs(self, params=None):
        given = self.function if self.params is None else self.params
        return np.asarray(self.applied(given if params is None else params))

    def hessian(self, params=None) -> np.ndarray:
        import jax
        from jax.flatten_util import ravel_pytree

        flat, unravel = ravel_pytree(jax.tree.map(lambda a: np.asarray(a, np.float64), self.theta))
        return np.asarray(jax.hessian(lambda v: self.value(unravel(v)))(flat))


def vectors(module, outputs=1, loss=None, d=4, n=N, **more):
    x, y = torch.randn(n, d), torch.randn(n, outputs)
    return Torch(module.eval(), x, y, loss or nn.MSELoss(), **more)


def images(module, classes=3, size=6, channels=1, n=N, loss=None):
    x, y = torch.randn(n, channels, size, size), torch.arange(n) % classes
    return Torch(module.eval(), x, y, loss or nn.CrossEntropyLoss())


def activated(activation):
    return lambda: vectors(mlp(4, 5, 4, 1, activation=activation))


def normed(norm):
    return lambda: vectors(
        nn.Sequential(nn.Linear(4, 6), norm(), nn.ReLU(), nn.Linear(6, 1)).eval()
    )


class Lambda(nn.Module):
    """A module of parts and a function of them and of the input."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args, **named):
        return self.function(self, *args, **named)


def sequences(function, outputs=1, **parts):
    """Rows of 6 numbers, read as 3 steps of 2."""
    module = Lambda(lambda m, x: function(m, x.reshape(len(x), 3, 2)), **parts)
    return vectors(module, outputs, d=6, n=4)


def unet():
    def forward(m, x):
        a = F.relu(m.down(x))
        b = F.relu(m.middle(F.max_pool2d(a, 2)))
        c = F.relu(m.up(b))
        return m.last(torch.cat([a, c], 1)).mean((2, 3))

    return images(
        Lambda(
            forward,
            down=nn.Conv2d(1, 2, 3, padding=1),
            middle=nn.Conv2d(2, 3, 3, padding=1),
            up=nn.ConvTranspose2d(3, 2, 2, stride=2),
            last=nn.Conv2d(4, 3, 1),
        )
    )


def convolved(*layers):
    """To 2 channels of 4 × 4, then a linear layer."""

    def make():
        parts = [copy.deepcopy(layer) for layer in layers]
        for part in parts:
            if isinstance(part, nn.Conv2d):
                part.reset_parameters()
        return images(nn.Sequential(*parts, nn.Flatten(), nn.Linear(32, 3)), size=4)

    return make


def reflected():
    first = nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect")
    layers = [first, nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(2, 3, 3), nn.ReLU()]
    return images(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), size=4)


def volumes():
    layers = nn.Conv3d(1, 2, 2), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten(), nn.Linear(2, 3)
    x, y = torch.randn(N, 1, 3, 3, 3), torch.arange(N) % 3
    return Torch(nn.Sequential(*layers), x, y, nn.CrossEntropyLoss())


def signals():
    layers = nn.Conv1d(2, 3, 2), nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(6, 1)
    return Torch(nn.Sequential(*layers), torch.randn(N, 2, 5), torch.randn(N, 1))


def autoencoder():
    layers = nn.Conv2d(1, 2, 2, stride=2), nn.ReLU(), nn.ConvTranspose2d(2, 1, 2, stride=2)
    return Torch(nn.Sequential(*layers), torch.randn(N, 1, 4, 4), torch.randn(N, 1, 4, 4))


def log_softmax():
    module = nn.Sequential(mlp(4, 5, 3), nn.LogSoftmax(1))
    return Torch(module, torch.randn(9, 4), torch.arange(9) // 3, nn.NLLLoss())


def binary():
    weight = torch.tensor(3.0, dtype=torch.float64)
    y = (torch.arange(N) % 2).double()
    return Torch(mlp(4, 5, 1), torch.randn(N, 4), y, nn.BCEWithLogitsLoss(pos_weight=weight))


def segmented():
    """A label for each of 4 pixels, some of them ignored."""
    net = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 1))
    y = torch.randint(0, 2, (4, 2, 2))
    y[3, 0] = -100
    return Torch(net, torch.randn(4, 1, 2, 2), y, nn.CrossEntropyLoss())


class Shortcut(nn.Module):
    """ResNet's block for CIFAR: batch norm in eval mode, channels filled up with zeros."""

    def __init__(self):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(2, 3, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(3)
        self.c2, self.n2 = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)

    def forward(self, x):
        h = self.n2(self.c2(F.relu(self.n1(self.c1(x)))))
        return F.relu(h + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, 1)))


def resnet():
    body = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), Shortcut())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))
    return images(nn.Sequential(body, head), size=4)


def mixer():
    def forward(m, x):
        h = m.embed(x)
        h = h + m.tokens(h.transpose(1, 2)).transpose(1, 2)
        return m.last((h + m.channels(h)).mean(1))

    parts = {
        "embed": nn.Linear(2, 4),
        "tokens": nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 3)),
        "channels": nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 4)),
        "last": nn.Linear(4, 1),
    }
    return sequences(forward, **parts)


def recurrent(kind, **settings):
    return lambda: sequences(
        lambda m, x: m.last(m.cell(x)[0][:, -1]),
        cell=kind(2, 3, batch_first=True, **settings),
        last=nn.Linear(3, 1),
    )


def own_state():
    def forward(m, x):
        start = tuple(torch.zeros(1, len(x), 3, dtype=torch.float32) for _ in range(2))
        return m.last(m.cell(x, start)[0][:, -1])

    return sequences(forward, cell=nn.LSTM(2, 3, batch_first=True), last=nn.Linear(3, 1))


def attention():
    def forward(m, x):
        h = m.up(x)
        return m.last(m.heads(h, h, h, need_weights=False)[0].mean(1))

    heads = nn.MultiheadAttention(4, 2, batch_first=True)
    return sequences(forward, up=nn.Linear(2, 4), heads=heads, last=nn.Linear(4, 1))


def fused_attention():
    def forward(m, x):
        q, k, v = m.project(x).chunk(3, -1)
        return m.last(F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, -1])

    return sequences(forward, project=nn.Linear(2, 9), last=nn.Linear(3, 1))


def transformer(**settings):
    layer = nn.TransformerEncoderLayer(4, 2, 5, batch_first=True, **settings)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    forward = lambda m, x: m.last(m.encoder(m.up(x)).mean(1))  # noqa: E731
    return sequences(forward, up=nn.Linear(2, 4), encoder=encoder, last=nn.Linear(4, 1))


def words(forward, **parts):
    """Sequences of 3 words out of 7, in 2 classes."""
    x, y = torch.randint(0, 7, (N, 3)), torch.arange(N) % 2
    return Torch(Lambda(forward, **parts), x, y, nn.CrossEntropyLoss())


def bag_of_words():
    return words(
        lambda m, x: m.net(m.table(x).mean(axis=1)), table=nn.Embedding(7, 3), net=mlp(3, 4, 2)
    )


def next_word(f, y):
    return F.cross_entropy(f.reshape(-1, f.shape[-1]), y.reshape(-1))


def tied_words():
    """The table of words is the last layer too."""
    x = torch.randint(0, 7, (3, 4))
    module = Lambda(
        lambda m, x: F.linear(torch.tanh(m.mix(m.table(x))), m.table.weight),
        table=nn.Embedding(7, 3),
        mix=nn.Linear(3, 3),
    )
    return Torch(module, x[:, :-1], x[:, 1:], next_word)


def weight_normed():
    plain = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
    nn.utils.parametrizations.weight_norm(plain[0])
    first = plain[0].parametrizations.weight

    def forward(m, x):
        weight = m.v * (m.g / (m.v**2).sum(1, keepdim=True).sqrt())
        return m.last(torch.tanh(x @ weight.T + m.bias))

    twin = Lambda(
        forward,
        bias=nn.Parameter(plain[0].bias.detach().clone()),
        g=nn.Parameter(first.original0.detach().clone()),
        v=nn.Parameter(first.original1.detach().clone()),
        last=copy.deepcopy(plain[2]),
    )
    return vectors(plain, twin=twin)


def spectral_normed():
    return vectors(
        nn.Sequential(
            nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)), nn.ReLU(), nn.Linear(5, 1)
        )
    )


def hardened():
    module = mlp(4, 5, 1, activation=nn.Hardsigmoid)
    twin = copy.deepcopy(module)
    twin[1] = Lambda(lambda m, x: torch.clamp(x / 6 + 0.5, 0, 1))
    return vectors(module, twin=twin)


def margins():
    def by_hand(f, y):
        gaps = torch.relu(1 - f.gather(1, y[:, None]) + f) ** 2
        return (gaps * (torch.arange(3) != y[:, None])).sum(1).mean() / 3

    case = vectors(mlp(4, 5, 3), 3, n=9)
    y = torch.arange(9) % 3
    return Torch(case.module, case.x, y, nn.MultiMarginLoss(p=2), loss_twin=by_hand)


def labelled(loss):
    """Labels come sorted."""
    return lambda: Torch(mlp(4, 5, 3), torch.randn(9, 4), torch.arange(9) // 3, loss)


WEIGHTS = torch.tensor([0.2, 1.0, 5.0], dtype=torch.float64)


def lazy():
    module = nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(1))
    module(torch.randn(2, 4))
    return vectors(module)


def compiled():
    return vectors(torch.compile(mlp(4, 5, 1)))


def frozen():
    module = mlp(4, 5, 4, 1)
    for p in module[2].parameters():
        p.requires_grad_(False)
    return vectors(module)


def optional():
    def forward(m, x, mask=None):
        h = m.one(x)
        return m.two(torch.relu(h) if mask is None else torch.tanh(h))

    return vectors(Lambda(forward, one=nn.Linear(4, 5), two=nn.Linear(5, 1)))


def direct():
    def forward(m, x):
        h = torch.relu(F.linear(x, m.first)) * m.gain + m.shift
        return m.last(h)

    return vectors(
        Lambda(
            forward,
            first=nn.Parameter(torch.randn(5, 4)),
            gain=nn.Parameter(torch.rand(5)),
            shift=nn.Parameter(torch.randn(5)),
            last=nn.Linear(5, 1),
        )
    )


def low_rank():
    """LoRA: a frozen matrix and a trained product beside it."""
    frozen = nn.Parameter(torch.randn(5, 4), requires_grad=False)

    def forward(m, x):
        return m.last(torch.relu(F.linear(x, m.frozen) + (x @ m.a) @ m.b))

    a, b = nn.Parameter(torch.randn(4, 2)), nn.Parameter(torch.randn(2, 5))
    return vectors(Lambda(forward, frozen=frozen, a=a, b=b, last=nn.Linear(5, 1)))


def huggingface(make, x=None, classes=2):
    def build():
        transformers = pytest.importorskip("transformers")
        module = make(transformers).eval()
        given = {"input_ids": torch.randint(0, 7, (4, 5))} if x is None else x()
        return Torch(module, given, torch.arange(4) % classes, nn.CrossEntropyLoss())

    return build


def language(make):
    """Every next word is the target."""

    def build():
        transformers = pytest.importorskip("transformers")
        words = torch.randint(0, 7, (3, 5))
        return Torch(
            make(transformers).eval(),
            {"input_ids": words[:, :-1]},
            words[:, 1:],
            next_word,
        )

    return build


SMALL = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 7}


def gpt2(t):
    config = t.GPT2Config(
        vocab_size=7, n_positions=5, n_embd=4, n_layer=1, n_head=2, n_inner=4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return t.GPT2LMHeadModel(config)


def bert(t):
    return t.BertForSequenceClassification(
        t.BertConfig(**SMALL, intermediate_size=4, max_position_embeddings=5)
    )


def vit(t):
    config = t.ViTConfig(
        hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=4,
        image_size=4, patch_size=2, num_channels=1, num_labels=2,
    )  # fmt: skip
    return t.ViTForImageClassification(config)


def llama(t):
    config = t.LlamaConfig(
        **SMALL, intermediate_size=4, num_key_value_heads=1, max_position_embeddings=5,
        bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return t.LlamaForCausalLM(config)


def pixels():
    return {"pixel_values": torch.randn(4, 1, 4, 4)}


def mean_square(f, y):
    import jax.numpy as jnp

    return jnp.mean(jnp.sum((f - y) ** 2, axis=-1))


def numbers(outputs=1, d=4, n=N):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)), rng.normal(size=(n, outputs))


def equinox_mlp(as_module):
    def make():
        eqx = pytest.importorskip("equinox")
        import jax

        module = eqx.nn.MLP(4, 1, 5, 2, key=jax.random.key(0))
        x, y = numbers()
        theta, rest = eqx.partition(module, eqx.is_inexact_array)
        value = lambda t: mean_square(jax.vmap(eqx.combine(t, rest))(x), y)  # noqa: E731
        function = module if as_module else lambda module, x: jax.vmap(module)(x)
        return Jax(
            function,
            None if as_module else module,
            x,
            y,
            "mse",
            value,
            theta,
            lambda module: jax.vmap(module)(x),
        )

    return make


def equinox_convolution():
    eqx = pytest.importorskip("equinox")
    import jax
    import jax.numpy as jnp

    one, two = jax.random.split(jax.random.key(0))
    layers = [
        eqx.nn.Conv2d(1, 2, 2, key=one),
        eqx.nn.Lambda(jax.nn.relu),
        eqx.nn.Lambda(jnp.ravel),
        eqx.nn.Linear(8, 1, key=two),
    ]
    module = eqx.nn.Sequential(layers)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(N, 1, 3, 3)), rng.normal(size=(N, 1))
    theta, rest = eqx.partition(module, eqx.is_inexact_array)
    value = lambda t: mean_square(jax.vmap(eqx.combine(t, rest))(x), y)  # noqa: E731
    return Jax(module, None, x, y, "mse", value, theta, lambda m: jax.vmap(m)(x))


def linen(normalized):
    def make():
        flax = pytest.importorskip("flax.linen")
        import jax

        class Network(flax.Module):
            @flax.compact
            def __call__(self, x):
                h = flax.Dense(5)(x)
                if normalized:
                    h = flax.BatchNorm(use_running_average=True)(h)
                return flax.Dense(1)(flax.relu(h))

        x, y = numbers()
        module = Network()
        variables = module.init(jax.random.key(0), x)
        if normalized:
            rng = np.random.default_rng(1)
            stats = jax.tree.map(lambda a: rng.uniform(0.5, 2, a.shape), variables["batch_stats"])
            variables = {**variables, "batch_stats": stats}
        fixed = {k: v for k, v in variables.items() if k != "params"}
        apply = lambda v, x: module.apply(v, x)  # noqa: E731
        value = lambda t: mean_square(apply({"params": t, **fixed}, x), y)  # noqa: E731
        return Jax(apply, variables, x, y, "mse", value, variables["params"], lambda v: apply(v, x))

    return make


def nnx_module():
    nnx = pytest.importorskip("flax.nnx")
    import jax

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.one, self.two = nnx.Linear(4, 5, rngs=rngs), nnx.Linear(5, 1, rngs=rngs)
            self.norm = nnx.BatchNorm(5, use_running_average=True, rngs=rngs)

        def __call__(self, x):
            return self.two(jax.nn.relu(self.norm(self.one(x))))

    module = Network(nnx.Rngs(0))
    x, y = numbers()
    graph, theta, rest = nnx.split(module, nnx.Param, ...)
    value = lambda t: mean_square(nnx.merge(graph, t, rest)(x), y)  # noqa: E731
    return Jax(module, None, x, y, "mse", value, theta, lambda m: m(x))


def haiku(normalized):
    def make():
        hk = pytest.importorskip("haiku")
        import jax

        def network(x):
            h = hk.Linear(5)(x)
            h = hk.LayerNorm(-1, True, True)(h) if normalized else h
            return hk.Linear(1)(jax.nn.relu(h))

        module = hk.without_apply_rng(hk.transform(network))
        x, y = numbers()
        params = module.init(jax.random.key(0), x)
        value = lambda t: mean_square(module.apply(t, x), y)  # noqa: E731
        return Jax(module.apply, params, x, y, "mse", value, params, lambda p: module.apply(p, x))

    return make


def jax_words():
    """Integer inputs: a table of words."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    shapes = {"table": (7, 3), "W": (3, 5), "a": (5, 2)}
    params = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    x, y = rng.integers(0, 7, (N, 3)), np.arange(N) % 2
    f = lambda p, x: jax.nn.relu(p["table"][x].mean(1) @ p["W"]) @ p["a"]  # noqa: E731

    def value(p):
        rows = jax.nn.log_softmax(f(p, x))
        return -jnp.mean(rows[np.arange(N), y])

    return Jax(f, params, x, y, "cross_entropy", value, params, lambda p: f(p, x))


def jax_squared():
    import jax

    rng = np.random.default_rng(0)
    params = {"W": rng.normal(size=(4, 5)), "a": rng.normal(size=(5, 1))}
    x, y = numbers()
    f = lambda p, x: jax.nn.relu(x @ p["W"] ** 2) @ p["a"]  # noqa: E731
    value = lambda p: mean_square(f(p, x), y)  # noqa: E731
    return Jax(f, params, x, y, "mse", value, params, lambda p: f(p, x))


NETWORKS: dict[str, Callable[[], Torch | Jax]] = {
    "MLP, ReLU": activated(nn.ReLU),
    "MLP, LeakyReLU": activated(nn.LeakyReLU),
    "MLP, PReLU": activated(nn.PReLU),
    "MLP, ReLU6": activated(nn.ReLU6),
    "MLP, Hardtanh": activated(nn.Hardtanh),
    "MLP, Hardsigmoid": hardened,
    "MLP, Hardswish": activated(nn.Hardswish),
    "MLP, GELU": activated(nn.GELU),
    "MLP, SiLU": activated(nn.SiLU),
    "MLP, ELU": activated(nn.ELU),
    "MLP, SELU": activated(nn.SELU),
    "MLP, Mish": activated(nn.Mish),
    "MLP, Softplus": activated(nn.Softplus),
    "MLP, Tanh": activated(nn.Tanh),
    "MLP, Sigmoid": activated(nn.Sigmoid),
    "MLP, Softsign": activated(nn.Softsign),
    "batch norm (eval)": normed(lambda: nn.BatchNorm1d(6)),
    "batch norm without statistics": normed(lambda: nn.BatchNorm1d(6, track_running_stats=False)),
    "layer norm": normed(lambda: nn.LayerNorm(6)),
    "RMS norm": normed(lambda: nn.RMSNorm(6)),
    "group norm": normed(lambda: nn.GroupNorm(2, 6)),
    "weight norm": weight_normed,
    "spectral norm": spectral_normed,
    "residual sums": lambda: vectors(Residual(), 2),
    "CNN, groups and strides": lambda: images(Convolutional(), size=8, n=4),
    "CNN, reflected padding": reflected,
    "CNN, zero padding": convolved(nn.ZeroPad2d(1), nn.Conv2d(1, 2, 3), nn.ReLU()),
    "CNN, bilinear": convolved(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.UpsamplingBilinear2d(4)),
    "CNN in three dimensions": volumes,
    "CNN on sequences": signals,
    "autoencoder": autoencoder,
    "ResNet's block": resnet,
    "U-Net": unet,
    "segmentation, ignored pixels": segmented,
    "max pool on rows": lambda: vectors(
        nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.MaxPool1d(2), nn.Linear(3, 1))
    ),
    "Mixer": mixer,
    "RNN": recurrent(nn.RNN),
    "LSTM": recurrent(nn.LSTM),
    "GRU": recurrent(nn.GRU),
    "LSTM, its own float32 state": own_state,
    "multi-head attention": attention,
    "fused attention, causal": fused_attention,
    "Transformer encoder": transformer,
    "Transformer encoder, norm first": lambda: transformer(norm_first=True, activation="gelu"),
    "bag of words": bag_of_words,
    "tied table of words": tied_words,
    "GPT-2 (transformers)": language(gpt2),
    "BERT (transformers)": huggingface(bert),
    "ViT (transformers)": huggingface(vit, pixels),
    "LLaMA (transformers)": language(llama),
    "torch.compile": compiled,
    "DataParallel": lambda: vectors(nn.DataParallel(mlp(4, 5, 1))),
    "lazy layers, after a run": lazy,
    "an optional argument": optional,
    "a tuple, by forward=": lambda: vectors(
        Lambda(lambda m, x: (m.net(x), x), net=mlp(4, 5, 1)), forward=lambda module, x: module(x)[0]
    ),
    "parameters outside of layers": direct,
    "frozen layers": frozen,
    "low rank beside a frozen matrix": low_rank,
    "float16": lambda: vectors(mlp(4, 5, 1).half()),
    "bfloat16": lambda: vectors(mlp(4, 5, 1).bfloat16()),
    "float64": lambda: vectors(mlp(4, 5, 1).double()),
    "class weights": labelled(nn.CrossEntropyLoss(weight=WEIGHTS)),
    "label smoothing": labelled(nn.CrossEntropyLoss(label_smoothing=0.1)),
    "ignored labels": labelled(nn.CrossEntropyLoss(ignore_index=2)),
    "a sum of losses": labelled(nn.CrossEntropyLoss(reduction="sum")),
    "log-softmax and NLL": log_softmax,
    "binary cross-entropy": binary,
    "multi-margin": margins,
    "Huber": lambda: vectors(mlp(4, 5, 2), 2, nn.HuberLoss()),
    "targets (n, 1) beside (n,)": lambda: vectors(nn.Sequential(mlp(4, 5, 1), nn.Flatten(0))),
    "Equinox, a module as it is": equinox_mlp(True),
    "Equinox, a function of a module": equinox_mlp(False),
    "Equinox, convolution": equinox_convolution,
    "Flax linen": linen(False),
    "Flax linen, batch_stats": linen(True),
    "Flax nnx, batch norm": nnx_module,
    "Haiku": haiku(False),
    "Haiku, layer norm": haiku(True),
    "JAX, integer inputs": jax_words,
    "JAX, a squared weight": jax_squared,
}  # fmt: skip


def case(name: str) -> Torch | Jax:
    torch.manual_seed(0)
    return NETWORKS[name]()


PAGE = """# Which networks are measured

Trace, λ_max and least trace over rescalings of small networks of {count} kinds.
`tests/flatness/test_real_networks.py` holds every row to a dense Hessian: the trace and λ_max to a
relative error of 1e-8, the least trace to its proven lower bound, the rescaled network to the
outputs, and the module to what it was before. This page is generated: `make networks`.

| network | parameters | trace | λ_max | least | how |
| --- | --- | --- | --- | --- | --- |
{rows}

Where there is no least trace, `notes` of the measurement say why (layer norm: the infimum is
degenerate). A softmax or norm in float32 inside of a module is computed in float64, here as in the
reference.

Refused, in one sentence each: networks and losses whose derivatives are not those of their values
(`once_differentiable`, `detach`, `stop_gradient`, fewer digits on the way in JAX); outputs
that differ from call to call (dropout in training mode), where L is not a function; batch norm in
training mode, which changes its statistics as it runs; outputs that depend on other samples, where
L is no mean over samples; layers with hooks, whose effects outside of the module cannot be undone;
lazy layers that have no weights yet; functions that reach a module's weights past it, which a copy
would not follow; modules compiled by torch.jit, which gets second derivatives wrong.

Not tested, for want of the hardware: CUDA, MPS, modules spread over several devices.
"""


def row(name: str, found) -> str:
    how, _, why = found.method.removeprefix("exact: ").partition(", because ")
    least = "none" if found.least is None else f"{found.least:.5g}"
    numbers = f"{found.parameters} | {found.trace:.5g} | {found.top_eigenvalue:.5g} | {least}"
    return f"| {name} | {numbers} | {how.partition(',')[0]}{f': {why}' if why else ''} |"


if __name__ == "__main__":
    lines = [row(name, case(name).measured()) for name in NETWORKS]
    Path("docs/networks.md").write_text(PAGE.format(count=len(lines), rows="\n".join(lines)))
