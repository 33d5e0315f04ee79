"""The gallery: a section for each script, with its first words, its picture and its code."""

import ast

ORDER = (
    "table1",
    "same_flatness",
    "sam_bias",
    "rescaling",
    "spike",
    "correlation",
    "phase",
    "edge",
    "resnet",
)

HEAD = """# Gallery

Short scripts and what they draw. A test runs each and compares its picture with the one here: at
most one pixel in a hundred may differ. [A notebook](gallery/flattest.ipynb) goes through the
first steps; it runs from top to bottom wherever flattest is installed.
"""


def gallery_page(folder):
    """Markdown with every script of the folder, in an order for reading."""
    assert set(ORDER) == {path.stem for path in folder.glob("*.py")}
    return "\n".join([HEAD, *(_section(folder / f"{name}.py") for name in ORDER)])


def _section(path):
    text = path.read_text(encoding="utf-8")
    title, _, words = ast.get_docstring(ast.parse(text)).partition("\n\n")
    code = text[text.index('"""', 3) + 3 :].strip()
    picture = f"![{title}](gallery/{path.stem}.png)"
    return f"## {title}\n\n{words}\n\n{picture}\n\n```python\n{code}\n```\n"
