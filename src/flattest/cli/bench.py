"""Run the benchmarks: ours against peers, side by side in one run, on one thread.

They are scripts of the source tree (benchmarks/), so this command needs a checkout. Peers that are
not installed are left out by name; `make bench` installs them.

Examples:

    flattest bench                 all of them, some minutes
    flattest bench training        one of them
"""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import tyro

import flattest
from flattest.errors import FlattestError, require_known

SCRIPTS = Path(flattest.__file__).parents[2] / "benchmarks"


def command(
    names: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAME", help="Which; all if none."),
    ] = (),
) -> int:
    found = {path.stem: path for path in sorted(SCRIPTS.glob("*.py"))}
    if not found:
        raise FlattestError("The benchmarks are part of the source tree; run this in a checkout.")
    for name in names:
        require_known("benchmark", name, found)
    codes = [
        subprocess.run([sys.executable, str(found[name])], check=False).returncode
        for name in names or found
    ]
    return int(any(codes))
