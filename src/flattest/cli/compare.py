"""Compare two networks: which is flatter, or are the differences only scale?

Measures two checkpoints as `flattest measure` does and prints them side by side: trace, least trace
over rescalings, top eigenvalue, loss, and a sentence. --model, --data and --loss are those of
`flattest measure`, the same for both; files that flattest wrote itself need none of them.

Examples:

    flattest example                writes net.safetensors, net.py and data.npz
    flattest measure net.safetensors --model net.py:build --data data.npz --out flat.safetensors
    flattest compare net.safetensors flat.safetensors --model net.py:build --data data.npz
    flattest construct memorizer -o memorizer.safetensors
    flattest construct xor-generalizer -o generalizer.safetensors
    flattest compare memorizer.safetensors generalizer.safetensors --json
"""

from pathlib import Path
from typing import Annotated

import tyro
from rich.markup import escape

from flattest.cli._options import Build, Json, LossName, SampleFile, output
from flattest.cli.measure import measured


def command(
    a: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="A", help="Parameters.")],
    b: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="B", help="Parameters.")],
    build: Build = None,
    data: SampleFile = None,
    loss: LossName = None,
    as_json: Json = False,
) -> None:
    from flattest.flatness.words import compared, comparison

    names = (a.stem, b.stem) if a.stem != b.stem else ("A", "B")
    one, two = (measured(path, build, data, loss) for path in (a, b))
    found = {"a": one.as_dict(), "b": two.as_dict(), "sentence": comparison(one, two, names)}
    output(as_json, found, escape(compared(one, two, names)))
