"""The wheel and the sdist: their contents and metadata, and whether the wheel works in another environment."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

import perdure
from tests.release.helpers import ROOT, project, tool

check_dist = tool("check_dist")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Build both files."""
    pytest.importorskip("hatchling", reason="builds the distributions")
    if not (ROOT / ".git").exists():
        pytest.skip("the expected contents are the files under version control")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True, capture_output=True
    )
    return folder


@pytest.fixture(scope="module")
def dist(folder):
    return check_dist.Distribution.of(folder)


@pytest.fixture(scope="module")
def tracked():
    return check_dist.tracked_files()


def test_a_build_of_this_commit_has_no_problems(dist, tracked):
    assert dist.version == perdure.__version__
    assert check_dist.content_problems(dist, tracked) == []


def test_a_missing_and_an_unexpected_file_are_named(dist, tracked):
    wheel, sdist = check_dist.wheel_files(dist.wheel), check_dist.sdist_files(dist.sdist)
    del wheel["perdure/reproduce/catalogue.toml"]
    del wheel[f"perdure-{dist.version}.dist-info/licenses/LICENSE"]
    assert check_dist.wheel_problems({**wheel, "perdure/notes.txt": b""}, tracked) == [
        "the wheel lacks perdure/reproduce/catalogue.toml",
        "the wheel has perdure/notes.txt",
        "the wheel has 1 licences, expected 2",
    ]
    del sdist["tests/conftest.py"]
    large = {**sdist, "docs/results/a.png": bytes(600_000)}
    assert check_dist.sdist_problems(large, tracked) == [
        "the sdist lacks tests/conftest.py",
        "the sdist has docs/results/a.png",
        "docs/results/a.png has 600000 bytes",
    ]


def test_the_package_data_are_in_the_wheel(dist):
    names = set(check_dist.wheel_files(dist.wheel))
    assert {
        "perdure/py.typed",
        "perdure/report/style.css",
        "perdure/report/scripts/charts.js",
        "perdure/report/templates/page.html.j2",
        "perdure/reproduce/bias/published_bias.csv",
        "perdure/reproduce/clamp/data/LICENSE",
        "perdure/reproduce/clamp/data/mnist.csv",
    } <= names


def test_wrong_metadata_are_found(dist):
    wheel = check_dist.wheel_files(dist.wheel)
    metadata = next(data for name, data in wheel.items() if name.endswith("METADATA"))
    assert check_dist.metadata_problems(metadata, dist.version) == []

    def problems(old: str, new: str) -> str:
        assert old.encode() in metadata
        return "\n".join(check_dist.metadata_problems(metadata.replace(old.encode(), new.encode()), dist.version))

    assert "'Development Status :: 9 - Perfect' does not exist" in problems(
        "Development Status :: 4 - Beta", "Development Status :: 9 - Perfect"
    )
    assert "license" in problems("Apache-2.0 AND MIT", "Apache and MIT").lower()
    assert "expected" in problems(f"Version: {dist.version}", "Version: 9.9")
    assert "project URL" in problems("Project-URL: Issues", "Project-URL: Bugs")
    assert "relative link 'docs/faq.md'" in problems("](https://github.com/", "](docs/faq.md) [x](https://github.com/")


def test_links_of_the_readme_lead_to_the_tag_of_the_version():
    pytest.importorskip("hatchling", reason="the hook is a plug-in of hatchling")
    links = tool("readme_hook").absolute_links
    source = project()["urls"]["Source"]
    text = "![a](docs/a.png) [b](docs/b.md#c) [d](https://d.org) [e](#f)"
    assert links(text, source, "1.2") == (
        f"![a]({source}/raw/v1.2/docs/a.png) [b]({source}/blob/v1.2/docs/b.md#c) [d](https://d.org) [e](#f)"
    )


@pytest.mark.extra
def test_the_wheel_works_in_another_environment(folder, capsys):
    code = check_dist.main([str(folder), "--reuse"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    assert "perdure demo --seeds 1" in printed.out


def test_a_wheel_without_a_template_is_not_published(folder, tmp_path, capsys):
    broken = tmp_path / "dist"
    broken.mkdir()
    for file in folder.iterdir():
        if file.suffix != ".whl":
            (broken / file.name).write_bytes(file.read_bytes())
            continue
        with zipfile.ZipFile(file) as old, zipfile.ZipFile(broken / file.name, "w") as new:
            for name in old.namelist():
                if not name.endswith("page.html.j2"):
                    new.writestr(name, old.read(name))
    assert check_dist.main([str(broken), "--reuse"]) == 1
    assert "the wheel lacks perdure/report/templates/page.html.j2" in capsys.readouterr().err
