"""Exporters that write files: CSV, Parquet, JSON, Markdown, model card; and the table in notebooks."""

import csv
import hashlib
import html
import math
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from perdure import Audit, InputError, Recorder
from perdure.audits import audit_runs
from perdure.exporters import EXPORTERS, export, exporter, optional_package
from perdure.exporters.tidy_table import TIDY_COLUMNS, tidy_rows
from tests.helpers.frameworks import require, run_example
from tests.helpers.pages import HOSTILE, synthetic_audit, synthetic_runs

FORMATS = ("csv", "json", "l2logger", "latex", "markdown", "mlflow", "model-card", "parquet", "tensorboard")


@pytest.fixture(scope="module")
def audit():
    return synthetic_audit(("rehearsal", HOSTILE, "naive"))


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_formats_have_one_line_descriptions():
    assert tuple(EXPORTERS.names()) == FORMATS
    assert all(summary.endswith(".") and "\n" not in summary for summary in EXPORTERS.summaries().values())
    with pytest.raises(InputError, match="did you mean 'parquet'"):
        EXPORTERS.get("parket")


def test_the_long_table_holds_every_number_and_reason(audit):
    rows = [dict(zip(TIDY_COLUMNS, row, strict=True)) for row in tidy_rows(audit)]
    for entry in audit.learners:
        own = [row for row in rows if row["learner"] == entry.title]
        for kind, numbers in (
            ("metric", entry.measures),
            ("variant", entry.variants),
            ("score", entry.scores),
            ("stability", entry.cl_stability),
        ):
            written = {row["name"]: row for row in own if row["kind"] == kind}
            assert list(written) == list(numbers)
            for name, value in numbers.items():
                row = written[name]
                np.testing.assert_equal(
                    [row["mean"], row["low"], row["high"], row["runs"]], [value.mean, value.low, value.high, value.n]
                )
                assert row["reason"] == (value.reason or "")
                assert bool(row["reason"]) or not math.isnan(value.mean)
    forgetting = next(row for row in rows if row["name"] == "forgetting")
    assert (forgetting["label"], forgetting["higher_is_better"]) == ("forgetting", False)


def test_csv_keeps_all_digits_and_its_texts_are_data(audit, tmp_path):
    (path,) = export(audit, "csv", tmp_path)
    assert path == str(tmp_path / "audit.csv")  # a folder was given
    with Path(path).open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = tidy_rows(audit)
    assert len(rows) == len(expected)
    for row, values in zip(rows, expected, strict=True):
        assert row["learner"] == values[0]
        assert (float(row["mean"]) if row["mean"] else math.nan) == pytest.approx(values[5], abs=0, nan_ok=True)
    runs = [type(run)(**{**vars(run), "learner": "=1+1\n"}) for run in synthetic_runs(("x",)) if not run.is_reference]
    export(audit_runs(runs), "csv", tmp_path / "formula.csv")
    text = (tmp_path / "formula.csv").read_text()
    assert text.splitlines()[1].startswith(r"'=1+1\n,")


def test_json_is_read_again(audit, tmp_path):
    export(audit, "json", tmp_path / "x.json")
    assert Audit.load(tmp_path / "x.json").to_json() == audit.to_json()


def test_parquet_has_the_values_and_types_of_the_table(audit, tmp_path):
    require("pyarrow")
    from pyarrow import parquet

    (path,) = export(audit, "parquet", tmp_path / "x.parquet")
    table = parquet.read_table(path)
    assert tuple(table.column_names) == TIDY_COLUMNS
    types = {name: str(table.schema.field(name).type) for name in ("learner", "mean", "runs", "higher_is_better")}
    assert types == {"learner": "string", "mean": "double", "runs": "int64", "higher_is_better": "bool"}
    expected = [
        tuple(None if isinstance(value, float) and math.isnan(value) else value for value in row)
        for row in tidy_rows(audit)
    ]
    assert [tuple(row.values()) for row in table.to_pylist()] == expected
    assert None in table.column("low").to_pylist()


def test_pandas_gets_the_same_table(audit):
    require("pandas")
    frame = audit.to_pandas()
    assert tuple(frame.columns) == TIDY_COLUMNS
    assert len(frame) == len(tidy_rows(audit))
    chosen = frame[(frame.learner == "naive") & (frame.name == "forgetting")]
    naive = next(entry for entry in audit.learners if entry.learner == "naive")
    assert chosen["mean"].item() == naive.measures["forgetting"].mean
    assert frame["mean"].dtype == float


def test_a_missing_package_is_named_with_the_way_to_install_it(audit, monkeypatch, tmp_path):
    for package in ("pandas", "pyarrow", "mlflow", "mlflow.exceptions", "tensorboard", "tensorboard.compat.proto"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r'pandas is needed .* pip install "perdure\[pandas\]"'):
        audit.to_pandas()
    for name, extra in (("parquet", "parquet"), ("mlflow", "mlflow"), ("tensorboard", "tensorboard")):
        with pytest.raises(InputError, match=rf'is needed here .* pip install "perdure\[{extra}\]"'):
            export(audit, name, tmp_path / name)
    with pytest.raises(ZeroDivisionError), optional_package("x", "x"):
        _ = 1 / 0


def test_markdown_holds_all_tables_and_transposes_wide_ones(audit, tmp_path):
    (path,) = export(audit, "markdown", tmp_path)
    text = Path(path).read_text()
    assert "## Means over runs with intervals" in text
    assert "## Accuracy on each task after each step" in text
    naive = next(entry for entry in audit.learners if entry.learner == "naive").measures["forgetting"]
    row = next(line for line in text.splitlines() if line.startswith("| forgetting ↓ |"))
    assert f"{naive.mean:.3f} [{naive.low:.3f}, {naive.high:.3f}]" in row
    assert "<script" not in text
    assert "<img" not in text
    assert max(line.count(" | ") for line in text.splitlines()) < 16


def test_the_section_of_a_model_card_is_replaced_and_the_rest_is_kept(audit, tmp_path):
    card = tmp_path / "README.md"
    before = "---\nlicense: apache-2.0\n---\n\n# My model\n\nText.\n"
    card.write_text(before)
    export(audit, "model-card", tmp_path)
    first = card.read_text()
    assert first.startswith(before)
    assert first.count("## Continual-learning audit") == 1
    for entry in audit.learners:
        value = entry.measures["average_accuracy"]
        assert f"{value.mean:.3f}" in first
    assert "forgetting" in first
    card.write_bytes((first + "\n## More\r\n").encode())
    other = audit_runs(synthetic_runs(("si",)))
    export(other, "model-card", card)
    second = card.read_bytes().decode()
    assert second.startswith(before)
    assert second.endswith("\n## More\r\n")
    assert second.count("## Continual-learning audit") == 1
    assert "| si |" in second
    assert "rehearsal" not in second
    export(other, "model-card", card)
    assert card.read_bytes().decode() == second
    card.write_text(second.replace("<!-- perdure: end -->", ""))
    with pytest.raises(InputError, match="expected one section between"):
        export(other, "model-card", card)


def test_the_card_is_valid_for_hugging_face(audit, tmp_path):
    require("huggingface_hub")
    from huggingface_hub import ModelCard

    (tmp_path / "README.md").write_text("---\nlicense: apache-2.0\ntags:\n- continual\n---\n\n# My model\n")
    export(audit, "model-card", tmp_path)
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.to_dict() == {"license": "apache-2.0", "tags": ["continual"]}
    assert "Continual-learning audit" in card.text


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "mlflow"])
def test_exporting_twice_changes_no_byte(tmp_path, name):
    require(*{"parquet": ["pyarrow"], "tensorboard": ["tensorboard"]}.get(name, []))
    audit = audit_runs(synthetic_runs(("rehearsal", HOSTILE), seeds=1))
    out = tmp_path / "out" / ("x" if EXPORTERS.get(name).file else "")
    written = export(audit, name, out)
    first = digests(tmp_path)
    assert first
    assert export(audit, name, out) == written
    assert digests(tmp_path) == first


def test_another_package_can_register_a_format(tmp_path, monkeypatch):
    monkeypatch.setattr(EXPORTERS, "_entries", dict(EXPORTERS.entries()))
    monkeypatch.setattr(EXPORTERS, "_summaries", dict(EXPORTERS.summaries()))

    @exporter("names", file="names.txt")
    def write_names(audit: Audit, out: str) -> list[Path]:
        """The names of the learners."""
        Path(out).write_text(",".join(entry.learner for entry in audit.learners))
        return [Path(out)]

    export(audit_runs(synthetic_runs(("a", "b"))), "names", tmp_path)
    assert (tmp_path / "names.txt").read_text() == "a,b,joint"
    assert EXPORTERS.summaries()["names"] == "The names of the learners."
    assert EXPORTERS.group == "perdure.exporters"


class _Table(HTMLParser):
    """Collects the tags and the cells of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_notebooks_show_a_ranked_table_in_which_names_are_data(audit):
    page = audit._repr_html_()
    parser = _Table()
    parser.feed(page)
    assert parser.tags == {"p", "table", "thead", "tbody", "tr", "th", "td", "span", "details", "summary", "br"}
    header, *rows = parser.rows
    assert header[:5] == ["", "learner", "runs", "Performance", "Reasons"]
    ranked = audit.verdicts
    assert [row[0] for row in rows] == ["–" if entry.rank is None else str(entry.rank) for entry in ranked]
    assert [row[1] for row in rows] == [
        entry.title if len(entry.title) <= 60 else entry.title[:59] + "…" for entry in ranked
    ]
    assert rows[0][3] == f"● good {ranked[0]['performance'].number}"
    accuracy = audit.learners[ranked[0].index].measures["average_accuracy"]
    assert rows[0][8].startswith(f"{accuracy.mean:.3f} [")
    assert html.escape(HOSTILE)[:40] in page


def test_without_scores_learners_are_ranked_by_average_accuracy(tmp_path):
    for name, accuracy in (("low", 0.2), ("high", 0.9)):
        Recorder(tmp_path / name, 1, learner=name).after_task({}, [accuracy])
    from perdure import audit as audit_records

    parser = _Table()
    parser.feed(audit_records(tmp_path)._repr_html_())
    assert [row[1] for row in parser.rows[1:]] == ["high", "low"]


def test_the_example_of_the_documentation_runs(tmp_path, monkeypatch, capsys):
    require("pandas")
    monkeypatch.chdir(tmp_path)
    frame = run_example("docs/exporting.md")["frame"]
    (forgetting,) = frame[frame.label == "forgetting"]["mean"]
    assert forgetting == pytest.approx(0.5)
    assert "average accuracy" in capsys.readouterr().out
    assert (tmp_path / "results.csv").is_file()
    assert (tmp_path / "tables" / "measures.tex").is_file()
