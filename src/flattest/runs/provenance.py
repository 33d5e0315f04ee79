"""Where a result comes from: commit, versions, machine."""

import functools
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import msgspec

from flattest.machine import available_cores

PACKAGES = ("flattest", "numpy", "scipy", "jax", "jaxlib", "numba", "msgspec", "distributed")
VECTORS = ("fma", "avx2", "avx512f", "asimd", "sve")
COMPILERS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "OPENBLAS_CORETYPE")


class Provenance(msgspec.Struct, frozen=True):
    """The code and the machine that made a run; `vectors` are the instructions that decide how
    kernels are compiled, and so the last digits of some (`docs/reliability.md` says of which)."""

    commit: str
    versions: dict[str, str]
    host: str
    machine: str
    cores: int
    vectors: str = ""  # records of before they were noted have none

    def is_of_another_kind(self, other: "Provenance") -> bool:
        """Whether the machines are of kinds that are known to differ."""
        noted = self.vectors and other.vectors
        return self.machine != other.machine or bool(noted and self.vectors != other.vectors)


@functools.cache
def provenance() -> Provenance:
    return Provenance(
        commit=commit(Path(__file__)),
        versions={"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
        host=platform.node(),
        machine=f"{platform.system()} {platform.machine()}, {processor()}",
        cores=available_cores(),
        vectors=vectors(),
    )


def commit(source: Path) -> str:
    """The commit `source` belongs to, "+changes" added if it was edited since; "" outside git.

    A copy installed inside somebody else's checkout is not one of its tracked files: that
    checkout's commit says nothing about us.
    """
    if git(source, "ls-files", "--error-unmatch", source.name) is None:
        return ""
    head = git(source, "rev-parse", "HEAD") or ""
    package = str(source.parents[1])
    changed = git(source, "status", "--porcelain", "--untracked-files=no", "--", package)
    return f"{head}+changes" if changed else head


def git(source: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(source.parent), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def processor() -> str:
    return cpu("model name") or platform.processor() or "unknown processor"


def vectors() -> str:
    """The vector instructions there are, and what compilers were told in their place."""
    found = [name for name in VECTORS if name in (cpu("flags") or cpu("Features")).split()]
    told = [f"{name}={os.environ[name]}" for name in COMPILERS if name in os.environ]
    return " ".join(found + told)


def cpu(field: str) -> str:
    """What Linux says of the first core; "" where it says nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith(field)]
    return found[0] if found else ""
