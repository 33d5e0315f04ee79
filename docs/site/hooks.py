"""What the site has beyond the folder docs: pages made of other files of the repository.

Links that lead out of docs lead to a page with the text of the file they name.
"""

import posixpath
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File, Files

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
from atlas import doorway_and_page  # noqa: E402
from benchmarks import benchmarks_page  # noqa: E402
from claims import ledger_page  # noqa: E402
from gallery import gallery_page  # noqa: E402
from names import index_page  # noqa: E402

SOURCE, DOCS = ROOT / "src" / "flattest", ROOT / "docs"
LINK = re.compile(r"(\]\()((?:\.\./)*[\w./-]+)(#[\w.-]+)?(\))")
PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
HOME = {"README.md": "index.md"}
SHIM = "https://unpkg.com/iframe-worker/shim"
SENTENCES = re.compile(r"<th>(statement|as expected)</th>")
LANGUAGES = {".py": "python", ".json": "json", ".pyi": "python"}
SHOWN_AT_MOST = 200_000  # characters of a file: a page of megabytes opens slowly


def on_files(files, config):
    """The changelog and the guide as pages, the citation file, and sources that documents name."""
    made = {name: _moved((ROOT / path).read_text(encoding="utf-8")) for path, name in PAGES.items()}
    made["cite.md"] = _source("How to cite it", ROOT / "CITATION.cff", "yaml")
    made["committed.md"], made["atlas/committed.html"] = doorway_and_page()
    made["benchmarks.md"] = benchmarks_page(ROOT / "benchmarks")
    made["gallery.md"] = gallery_page(DOCS / "gallery")
    made["api/index.md"] = index_page(DOCS / "api", SOURCE)
    texts = [f.content_string for f in files.documentation_pages()] + list(made.values())
    for path in sorted({p for text in texts for p in _outside(text)}):
        language = LANGUAGES.get(Path(path).suffix, "text")
        made[f"source/{path}.md"] = _source(path, ROOT / path, language)
    return Files([*files, *(File.generated(config, k, content=v) for k, v in made.items())])


def on_page_markdown(markdown, page, config, files):
    here = posixpath.dirname(page.file.src_uri)
    markdown = ledger_page(markdown) if page.file.src_uri == "claims.md" else markdown
    return LINK.sub(lambda found: _inside(found, here), markdown)


def on_page_content(html, page, config, files):
    """Columns of sentences have a name, by which the style gives them room in wide tables."""
    return SENTENCES.sub(r'<th class="sentences">\1</th>', html)


def on_post_page(output, page, config):
    """The theme takes its shim for reading from disk from another host; ours is beside the page."""
    here = posixpath.dirname(page.url) or "."
    return output.replace(SHIM, posixpath.relpath("site/iframe-worker.js", here))


def on_post_build(config):
    """A site on disk has no server that would show this page."""
    (Path(config["site_dir"]) / "404.html").unlink(missing_ok=True)


def _moved(text):
    """A document of the root as one of docs: what it links is one folder up, or beside it."""
    return LINK.sub(lambda m: m[1] + _from_root(m[2]) + (m[3] or "") + m[4], text)


def _from_root(target):
    return target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"


def _outside(text):
    """Files of the repository, other than pages, that a document links."""
    for _, target, _, _ in LINK.findall(text):
        name = re.sub(r"^(\.\./)+", "", target)
        if target.startswith("../") and name not in PAGES | HOME and (ROOT / name).is_file():
            yield name


def _inside(found, here):
    """A link that leads out of docs, to the page made of the file."""
    name = re.sub(r"^(\.\./)+", "", found[2])
    outside = posixpath.normpath(posixpath.join("docs", here, found[2]))
    if not found[2].startswith("../") or outside.startswith("docs/"):
        return found[0]
    page = (PAGES | HOME).get(name, f"source/{name}.md")
    return found[1] + posixpath.relpath(page, here or ".") + (found[3] or "") + found[4]


def _source(title, path, language):
    text = path.read_text(encoding="utf-8")
    if len(text) > SHOWN_AT_MOST:
        text = f"{text[:SHOWN_AT_MOST]}\n… ({len(text)} characters in all)\n"
    fence = "`" * 4
    return f"# {title}\n\n{fence} {language}\n{text}\n{fence}\n"
