"""The page of benchmarks: what `flattest bench NAME --keep` kept, with where it was run."""

import ast

HEAD = """# Benchmarks

Ours against peers, side by side in one run, on one thread. Each block is what `flattest bench
NAME --keep` printed, below the commit, the machine and the versions. Times are of that machine;
the ratios travel better.
How fast a PyTorch module is measured, beside BackPACK, PyHessian and others, stands
[with measuring](measure.md#how-fast).
"""


def benchmarks_page(folder):
    """Markdown with every result that is kept in the folder, in the order of the scripts."""
    kept = sorted((folder / "results").glob("*.txt"))
    return "\n".join([HEAD, *(_section(folder, path) for path in kept)])


def _section(folder, path):
    script = (folder / f"{path.stem}.py").read_text(encoding="utf-8")
    title = ast.get_docstring(ast.parse(script)).partition("\n")[0]
    return f"## {path.stem}\n\n{title}\n\n```text\n{path.read_text(encoding='utf-8')}```\n"
