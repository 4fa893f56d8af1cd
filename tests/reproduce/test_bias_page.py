"""The page of the bias experiments: stored sections, and sections of the existing page that are kept."""

from pathlib import Path

from perdure.reproduce.bias import EXPERIMENTS, Experiment, run_experiment, write_page
from perdure.reproduce.bias.experiment import read_page_sections
from tests.helpers.bias_network import workspace_at

PAGE = Path(__file__).parents[2] / "docs" / "results" / "trust.md"


def experiment(name: str, text: str) -> Experiment:
    return Experiment(f"bias-{name}", f"About {name}?", "Figure 1", lambda _: text)


def test_one_experiment_changes_only_its_own_section(tmp_path):
    page = tmp_path / "page.md"
    both = [experiment("one", "first\n\n### Part\n\n| a | b |\n"), experiment("two", "second")]
    for entry in both:
        run_experiment(entry, workspace_at(tmp_path / entry.name))
        write_page(both, tmp_path / entry.name / "out", page)
    sections = read_page_sections(page)
    assert all(text.startswith("Measured ") for text in sections.values())
    texts = {name: text.partition("\n\n")[2] for name, text in sections.items()}
    assert texts == {"bias-one": "first\n\n### Part\n\n| a | b |", "bias-two": "second"}
    run_experiment(experiment("two", "changed"), workspace_at(tmp_path / "again"))
    write_page([*both, experiment("three", "")], tmp_path / "again" / "out", page)
    assert read_page_sections(page)["bias-one"].endswith("| a | b |")
    assert read_page_sections(page)["bias-two"].endswith("\n\nchanged")
    assert read_page_sections(page)["bias-three"] == "Not run yet."


def test_the_published_page_is_kept_as_it_is(tmp_path):
    page = tmp_path / "trust.md"
    page.write_text(PAGE.read_text())
    write_page(list(EXPERIMENTS.values()), tmp_path / "out", page)
    assert page.read_text() == PAGE.read_text()
    assert list(read_page_sections(page)) == list(EXPERIMENTS)
