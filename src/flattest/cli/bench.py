"""Run the benchmarks: ours against peers, side by side in one run, on one thread.

They are scripts of the source tree (benchmarks/), so this command needs a checkout. Peers that are
not installed are left out by name; `make bench` installs them.

Examples:

    flattest bench                     all of them, some minutes
    flattest bench training            one of them
    flattest bench training --keep     and keeps what it printed, with versions, for the site
"""

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import tyro

import flattest
from flattest.errors import FlattestError, require_known
from flattest.files import write_bytes
from flattest.runs.provenance import PACKAGES, provenance

SCRIPTS = Path(flattest.__file__).parents[2] / "benchmarks"
KEPT = SCRIPTS / "results"
PEERS = ("torch", "backpack-for-pytorch", "curvlinops-for-pytorch", "pyhessian", "matfree", "cvxpy")


def command(
    names: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="NAME", help="Which; all if none."),
    ] = (),
    keep: Annotated[bool, tyro.conf.arg(help="Keep the output in benchmarks/results.")] = False,
) -> int:
    found = {path.stem: path for path in sorted(SCRIPTS.glob("*.py"))}
    if not found:
        raise FlattestError("The benchmarks are part of the source tree; run this in a checkout.")
    for name in names:
        require_known("benchmark", name, found)
    run = run_and_keep if keep else run_script
    return int(any(run(found[name]) for name in names or found))


def run_script(script: Path) -> int:
    return subprocess.run([sys.executable, str(script)], check=False).returncode


def run_and_keep(script: Path) -> int:
    """Run it, and keep what it printed below a few lines that say where."""
    done = subprocess.run([sys.executable, str(script)], check=False, stdout=-1, text=True)
    print(done.stdout, end="")
    if done.returncode == 0:
        write_bytes(KEPT / f"{script.stem}.txt", f"{circumstances()}\n{done.stdout}".encode())
    return done.returncode


def circumstances() -> str:
    made = provenance()
    installed = {d.name.lower(): d.version for d in metadata.distributions()}
    versions = [f"{n} {installed[n]}" for n in (*PACKAGES, *PEERS) if n in installed]
    return (
        f"commit {made.commit}\n{made.machine}, {made.cores} cores\n"
        f"Python {made.versions['python']}, {', '.join(versions)}\n"
    )
