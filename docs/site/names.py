"""The table of all public names: one line each, with a link to its entry."""

import ast
import re

ENTRY = re.compile(r"^::: (flattest\.[\w.]+)$", re.MULTILINE)


def index_page(api, source):
    """Markdown; `api` is the folder of the reference, `source` that of the package."""
    rows = {}
    for page in sorted(api.glob("*.md")):
        for path in ENTRY.findall(page.read_text(encoding="utf-8")):
            module, _, name = path.rpartition(".")
            if module == "flattest":
                rows[name] = (f"{page.name}#{path}", "The measures, of PyTorch modules.")
            else:
                rows[name] = (f"{page.name}#{path}", _first_line(source, module, name))
    lines = [f"| [`ft.{name}`]({link}) | {text} |" for name, (link, text) in sorted(rows.items())]
    return "\n".join([HEAD, *lines]) + "\n"


HEAD = """# All public names

`import flattest as ft` imports nothing else: a name brings its module along when it is first
asked for. Every page of the reference begins with examples, which are run by a test.

| name | |
| --- | --- |"""


def _first_line(source, module, name):
    path = source.parent / f"{module.replace('.', '/')}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if getattr(node, "name", None) == name:
            text = ast.get_docstring(node) or ""
            line = " ".join(text.partition("\n\n")[0].split())
            return re.split(r"(?<=[.;:]) ", line)[0].replace("|", "\\|").replace("*", "\\*")
    return ""
