"""Files of figures: the same bytes in every process, names drawn as they are, and never a partial file."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from perdure.figures import as_svg, attribution_bars, save
from tests.helpers.crashes import contents

NAMES = ["$x^{", r"$\frac$", "a\x1b[2Jb", "two\nlines", "evil\u202egnp", "<b>&amp;"]
WRITE = "import sys; from tests.figures.test_style import write_files; write_files(sys.argv[1])"


def make_figure() -> Figure:
    """Return a figure with hostile names in its title, ticks, legend and texts, clipped lines and markers."""
    figure = Figure(layout="constrained")
    panels = figure.subplots(1, 2)
    for panel in panels:
        for index, name in enumerate(NAMES):
            panel.plot([0, 1, 2], [index, 2 * index, 1], marker="o", label=name)
            panel.text(1, index, name)
        panel.fill_between([0, 1], [0, 1], [1, 2], alpha=0.2)
        panel.set_title(NAMES[0])
        panel.set_xticks(range(len(NAMES)), NAMES)
    panels[0].legend()
    figure.suptitle(NAMES[1])
    return figure


def write_files(folder: str) -> None:
    """Write the figure in every format."""
    for name in ("figure.png", "figure.svg", "figure.pdf"):
        save(make_figure(), Path(folder) / name)
    (Path(folder) / "embedded.svg").write_text(as_svg(make_figure()))


def test_the_same_figure_has_the_same_bytes_in_every_process(tmp_path):
    write_files(str(tmp_path / "1"))
    environment = {"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", WRITE, str(tmp_path / "2")], check=True, env=environment)
    first, second = contents(tmp_path / "1"), contents(tmp_path / "2")
    assert first.keys() == {"figure.png", "figure.svg", "figure.pdf", "embedded.svg"}
    assert first == second
    assert b"<dc:date>" not in first["figure.svg"]
    assert b"CreationDate" not in first["figure.pdf"]


@pytest.mark.parametrize("extension", ["png", "svg", "pdf"])
def test_a_figure_can_be_written_twice(tmp_path, extension):
    figure = make_figure()
    paths = [save(figure, tmp_path / f"{number}.{extension}") for number in (1, 2)]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_names_are_drawn_as_they_are(tmp_path):
    figure = make_figure()
    save(figure, tmp_path / "figure.svg")
    ET.parse(tmp_path / "figure.svg")
    ET.fromstring(as_svg(figure))
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ["$x^{", r"$\frac$", r"a\x1b[2Jb", "two\nlines", r"evil\u202egnp", "<b>&amp;"]


def test_an_interrupted_write_keeps_the_earlier_file(tmp_path, monkeypatch):
    path = save(make_figure(), tmp_path / "figure.svg")
    before = path.read_bytes()

    def fail(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", fail)
    figure = make_figure()
    figure.suptitle("another")
    with pytest.raises(KeyboardInterrupt):
        save(figure, path)
    assert contents(tmp_path) == {"figure.svg": before}


def test_notebooks_show_a_figure_without_pyplot():
    """IPython knows matplotlib's figures only if pyplot was imported."""
    figure = attribution_bars([["age = 39"]], {"shapley": [[0.3]]})
    assert figure._repr_png_().startswith(b"\x89PNG")
