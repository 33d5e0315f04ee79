"""Where a result comes from: commit, versions, machine."""

import functools
import importlib.metadata
import platform
import subprocess
from pathlib import Path

import msgspec

from flattest.machine import available_cores

PACKAGES = ("flattest", "numpy", "scipy", "jax", "jaxlib", "numba", "msgspec", "distributed")


class Provenance(msgspec.Struct, frozen=True):
    """The code and the machine that made a run."""

    commit: str
    versions: dict[str, str]
    host: str
    machine: str
    cores: int


@functools.cache
def provenance() -> Provenance:
    return Provenance(
        commit=commit(Path(__file__)),
        versions={"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
        host=platform.node(),
        machine=f"{platform.system()} {platform.machine()}, {processor()}",
        cores=available_cores(),
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
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown processor"
