"""The documentation: links and anchors exist, the glossary is complete, and captions have the computed numbers."""

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from perdure.report.glossary import ABBREVIATIONS, GLOSSARY

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)|(?:src|href)=\"([^\"]+)\"", re.MULTILINE)
CONCEPTS = sorted(page for page in (ROOT / "docs" / "concepts").glob("*.md") if page.stem != "index")


def tool(name):
    """Return a module of the folder of tools."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(page: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them, and those that it states."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    counts: Counter[str] = Counter()
    found = set(re.findall(r"(?:id|name)=\"([^\"]+)\"", text))
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        found.add(f"{slug}-{counts[slug]}" if counts[slug] else slug)
        counts[slug] += 1
    return found


def broken_links(page: Path) -> list[str]:
    """Return the links of a page to files or anchors that do not exist; links to other sites are not checked."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for target in (next(filter(None, groups)) for groups in LINK.findall(text)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = page if not file else page.parent / file
        if not path.exists() or (anchor and anchor not in anchors(path.read_text(encoding="utf-8"))):
            broken.append(target)
    return broken


def setting(name: str) -> str:
    """Return the lines of a setting in mkdocs.yml."""
    found = re.search(rf"^{name}:\n(?: .*\n)+", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("page", PAGES)
def test_links_within_the_repository_exist(page):
    assert not broken_links(ROOT / page)


def test_broken_links_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# A title, `code` and more!\n\n```\n# no heading\n```\n## Twice\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Own\n[a](other.md#a-title-code-and-more) [b](other.md#twice-1) [c](#own) [d](https://example.org/x#y)\n"
        "[e](missing.md) [f](other.md#no-heading) [g](#other) ![h](picture.png)\n\n[ref]: gone.md\n`[code](nothing.md)`\n"
        '<a href="absent.md">link</a>\n'
    )
    assert broken_links(page) == ["missing.md", "other.md#no-heading", "#other", "picture.png", "gone.md", "absent.md"]


def test_readme_and_contributing_name_files_that_exist():
    for page in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"(?<![\w/])((?:docs|tools|benchmarks|examples)/[\w./-]+\.\w+)", (ROOT / page).read_text())
        generated = {"docs/results/benchmarks.md"}  # written by make bench
        assert [name for name in named if name not in generated and not (ROOT / name).exists()] == []


@pytest.mark.extra
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[link](index.md#nowhere)", "no such anchor|does not contain an anchor"),
        ("[link](missing.md)", "not found"),
        ("[link](/absolute.md)", "absolute"),
        ("fine", ""),
    ],
)
def test_the_build_of_the_site_fails_on_broken_links(tmp_path, text, message):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# Page\n\n{text}\n")
    (tmp_path / "mkdocs.yml").write_text(f"site_name: test\n{setting('validation')}")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (not message), done.stderr
    assert re.search(message, done.stderr)


def test_every_page_is_in_the_navigation():
    listed = re.findall(r"[\w./-]+\.md", setting("nav"))
    assert [page for page, count in Counter(listed).items() if count > 1] == []
    written = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert written <= set(listed)


def test_the_glossary_has_every_number_of_the_report_and_each_name_once():
    glossary = tool("glossary_page")
    page = glossary.glossary_page()
    names = [*glossary.TERMS, *(term.name for term in GLOSSARY.values())]
    assert [name for name, count in Counter(map(glossary.anchor, names)).items() if count > 1] == []
    for term in GLOSSARY.values():
        entry = page.partition(f"{{ #{glossary.anchor(term.name)} }}")[2].partition("\n")[0]
        plain = entry.replace("\\", "").replace("&lt;", "<").replace("&gt;", ">")
        assert term.meaning in plain
        assert term.computed in plain
    for word in ABBREVIATIONS:
        assert f"| {glossary._text(word)} |" in page


def test_terms_of_the_glossary_are_one_or_two_sentences():
    terms = tool("glossary_page").TERMS
    required = "step run record samples examples player background floor ceiling calibrated unit shard policy reference"
    required += " task-incremental class-incremental domain-incremental buffer"
    assert set(required.split()) <= set(terms)
    for name, text in terms.items():
        assert 1 <= len(re.findall(r"[.)](?: |$)", re.sub(r"\([^)]*\)", "", text))) <= 2, name
        assert text.endswith("."), name


@pytest.mark.parametrize("page", CONCEPTS, ids=lambda page: page.stem)
def test_concept_pages_are_complete(page):
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    expected = ["Formulas?", "Read the number", "When not to use it", "In other libraries", "Try it", "Go on"]
    assert len(headings) == len(expected)
    assert all(re.fullmatch(pattern, heading) for pattern, heading in zip(expected, headings, strict=True))
    assert text.count("![") == 1
    assert tool("concept_pictures").page_caption(text, page.stem)


def test_captions_with_other_numbers_or_words_are_refused():
    pictures = tool("concept_pictures")
    caption = "Task 5: bias 0.0072, SHAPC 0.65 [0.60, 1.00]."
    assert pictures.similar_captions(caption, "*Task 5: bias 0.0070, SHAPC 0.66\n[0.61, 1.00].*")
    assert not pictures.similar_captions(caption, "Task 5: bias 0.0720, SHAPC 0.65 [0.60, 1.00].")
    assert not pictures.similar_captions(caption, "Task 5: bias 0.0072, SHAPC 0.40 [0.60, 1.00].")
    assert not pictures.similar_captions(caption, "Task 4: bias 0.0072, SHAPC 0.65 [0.60, 1.00].")
    assert not pictures.similar_captions(caption, "Step 5: bias 0.0072, SHAPC 0.65 [0.60, 1.00].")


def test_the_caption_of_clamp_is_computed_from_curves_that_agree_until_tasks_are_revisited():
    pictures = tool("concept_pictures")
    first, second = (pictures.causes_curves(name, [0, 1, 0, 1])[0] for name in pictures.CAUSES)
    assert abs(first[:, :3] - second[:, :3]).max() < 1e-12
    assert abs(first[:, 3:] - second[:, 3:]).max() > 0.05
    _, caption = pictures.causes_picture()
    text = (ROOT / "docs/concepts/causes.md").read_text(encoding="utf-8")
    assert pictures.similar_captions(pictures.page_caption(text, "causes"), caption)
