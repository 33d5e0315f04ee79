"""The documentation: every public name has its entry and an example, every block of code is run or
marked as output, commands that are shown exist, and pictures are those of their scripts."""

import ast
import re
import runpy
import shlex

import pytest

import flattest
from flattest.cli import _dispatch
from support.pictures import difference
from support.places import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "api").glob("*.md"))]
FENCE = re.compile(r"^(`{3,})(.*?)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
RUN, COMMANDS, OUTPUT = "python", "sh", "text"
ENTRY = re.compile(r"^::: flattest\.([\w.]+)$", re.MULTILINE)
SCRIPTS = sorted((DOCS / "gallery").glob("*.py"))


def blocks(page, language):
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [text for _, name, text in found if name == language]


def test_every_public_name_has_an_entry_and_an_example_on_its_page():
    for page in (DOCS / "api").glob("*.md"):
        examples = "\n".join(blocks(page, RUN))
        for entry in ENTRY.findall(page.read_text(encoding="utf-8")):
            assert f"ft.{entry.rpartition('.')[2]}" in examples, entry


def test_every_entry_is_a_public_name_at_its_home():
    entries = [e for page in PAGES for e in ENTRY.findall(page.read_text(encoding="utf-8"))]
    homes = {f"{home}.{name}".removeprefix("flattest.") for name, home in flattest._HOMES.items()}
    assert sorted(entries) == sorted(homes)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_code_is_run_or_marked_as_commands_or_output(page):
    languages = {name for _, name, _ in FENCE.findall(page.read_text(encoding="utf-8"))}
    assert languages <= {RUN, COMMANDS, OUTPUT}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_of_code_is_hidden_from_the_test_above(page):
    """Markdown also takes indented lines for code; in a list they belong to an entry."""
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    assert re.findall(r"(?m)(?:^(?![ *-]).*\n|\A)\n    \S.*$", prose) == []


def test_a_list_begins_after_an_empty_line():
    """The site's Markdown takes it for words of the paragraph otherwise; GitHub's does not."""
    glued = re.compile(r"(?m)^(?!- |\d+\. | |<|#|\||\n).+\n(?=- |1\. )")
    assert glued.search("Words:\n- an entry\n") is not None
    assert glued.search("Words:\n\n- an entry\n  that goes on\n- another\n") is None
    for page in (*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"):
        assert glued.findall(FENCE.sub("", page.read_text(encoding="utf-8"))) == [], page.name


def test_every_figure_of_the_documents_is_there_and_every_one_that_is_there_is_shown_or_offered():
    named = re.compile(r"\((figures/[\w/.-]+)\)")
    shown = {f for page in DOCS.glob("*.md") for f in named.findall(page.read_text("utf-8"))}
    there = {p.relative_to(DOCS).as_posix() for p in (DOCS / "figures").rglob("*.*")}
    assert shown <= there
    # A picture comes in several formats; a page may show one and leave the others to the folder.
    stems = {f.rpartition(".")[0] for f in shown}
    assert {f for f in there if f.rpartition(".")[0] not in stems} == set()


def shown_commands():
    """Lines of the documents that call flattest, their continuations joined."""
    for page in PAGES:
        for block in blocks(page, COMMANDS):
            for line in block.replace("\\\n", " ").splitlines():
                for called in re.findall(r"(?:^|&& |bin/)flattest ([a-z].*?)(?: &&|$)", line):
                    yield page.name, shlex.split(called, comments=True)


def test_every_command_that_is_shown_exists_with_its_options(capsys):
    shown = list(shown_commands())
    assert len(shown) > 30
    known = {name: options_of(name, capsys) for name in {words[0] for _, words in shown}}
    for page, (name, *rest) in shown:
        options = {word.partition("=")[0] for word in rest if word.startswith("-")}
        assert options <= known[name], (page, name)


def options_of(name, capsys):
    with pytest.raises(SystemExit):
        _dispatch.main([name, "--help"])
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", capsys.readouterr().out))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_of_the_gallery_draws_its_picture(script, cwd):
    """At most one pixel in a hundred differs."""
    if script.stem == "resnet":
        pytest.importorskip("torch", exc_type=ImportError)
    runpy.run_path(str(script))
    assert difference(script.with_suffix(".png"), cwd / f"{script.stem}.png") <= 0.01


def test_a_picture_that_is_not_the_script_s_would_be_noticed():
    pictures = sorted((DOCS / "gallery").glob("*.png"))
    assert len(pictures) == len(SCRIPTS)
    assert all(difference(p, q) > 0.01 for p in pictures for q in pictures if p is not q)


def test_scripts_of_the_gallery_open_with_a_title_and_words():
    for script in SCRIPTS:
        title, _, words = ast.get_docstring(ast.parse(script.read_text())).partition("\n\n")
        assert title
        assert words


def test_the_ledger_of_the_site_has_three_columns_and_all_that_the_document_says():
    document = (DOCS / "claims.md").read_text(encoding="utf-8")
    shown = runpy.run_path(str(DOCS / "site" / "claims.py"))["ledger_page"](document)
    wide, narrow = (
        [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| `")]
        for text in (document, shown)
    )
    assert len(wide) > 200
    for nine, three in zip(wide, narrow, strict=True):
        assert (len(nine), len(three)) == (9, 3)
        assert all(cell.strip() in "|".join(three) for cell in nine if cell.strip() != "0")


def test_the_navigation_names_every_document():
    """What mkdocs.yml does not name, nobody finds."""
    named = set(re.findall(r": ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    there = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    made = {"changelog.md", "contributing.md", "cite.md", "committed.md", "gallery.md"}
    assert named - made - {"benchmarks.md", "api/index.md"} == there


def test_the_paper_cites_what_its_bibliography_has_and_says_where_each_entry_was_checked():
    paper, bibliography = ((ROOT / "paper" / f"paper.{end}").read_text() for end in ("md", "bib"))
    cited = set(re.findall(r"@(\w+)", paper.partition("\n---\n")[2]))
    assert cited == set(re.findall(r"^% .+\n@\w+\{(\w+),", bibliography, re.MULTILINE))
    assert bibliography.count("\n@") == len(cited)
