"""Write a small network, its data and a laboratory file, to try the other commands on.

The files are net.py, net.safetensors, data.npz and lab.py. The network's units were scaled so that
it looks many times sharper than it is, which `measure` sees through.

Examples:

    flattest example            into this folder
    flattest example tryout     into a folder of that name
    flattest measure net.safetensors --model net.py:build --data data.npz
    flattest judge lab.py:label_noise
"""

import shlex
from pathlib import Path
from typing import Annotated

import tyro

from flattest.cli._options import console


def command(
    folder: Annotated[
        Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR", help="Where to write them.")
    ] = Path("."),
) -> None:
    from flattest.examples.write import write_examples

    written = write_examples(folder)
    source, lab, tensors, data = (shlex.quote(str(path)) for path in written)
    lines = [
        f"Wrote {', '.join(map(str, written))}. To measure the network and to judge a setup:",
        f"  flattest measure {tensors} --model {source}:build --data {data}",
        f"  flattest judge {lab}:label_noise",
    ]
    console().print("\n".join(lines), markup=False, soft_wrap=True)
