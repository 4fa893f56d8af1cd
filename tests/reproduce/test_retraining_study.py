"""The retraining study end to end on a tiny file: the page shows the results and preserves other sections."""

import re
from dataclasses import replace

import numpy as np
import pytest

from perdure.audits.retraining.runner import stored_retrain_maps
from perdure.learners import Training
from perdure.reproduce.retraining import study as retraining
from perdure.reproduce.retraining.study import DISTANCE, Study

CLASSES, SIDE = 10, 32


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Official files with few images and three small studies that share their networks; return the folder."""
    rng = np.random.default_rng(0)
    y = np.arange(12 * CLASSES) % CLASSES
    x = rng.integers(0, 190, (len(y), SIDE, SIDE, 3), dtype=np.uint8)
    for row, label in enumerate(y):
        x[row, 3 * label : 3 * label + 3] += 65
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    records = np.concatenate([y[:, None].astype(np.uint8), x.transpose(0, 3, 1, 2).reshape(len(x), -1)], axis=1)
    for number, part in enumerate(np.array_split(records, 5), start=1):
        (folder / f"data_batch_{number}.bin").write_bytes(part.tobytes())
    (folder / "test_batch.bin").write_bytes(records[:CLASSES].tobytes())
    methods = ("expected_gradients", "grad")
    tiny = Study("tiny", "Tiny", "mlp400", 16, Training(epochs=4, batch_size=8, lr=0.05), 6, methods, (0.3,))
    sweep = replace(tiny, name="tiny-sweep", title="Tiny, finer", methods=methods[:1], noise=(1.0,), per_fold=4)
    # Fewer draws than in the study; the page and the result use the same draws.
    monkeypatch.setattr("perdure.metrics.retraining.RESAMPLES", 60)
    monkeypatch.setattr("perdure.metrics.retraining.PERMUTATIONS", 59)
    own = replace(tiny, name="tiny-own", title="Tiny, own", noise=(), target="own")
    monkeypatch.setattr(retraining, "STUDIES", {"tiny": tiny, "tiny-sweep": sweep, "tiny-own": own})
    return tmp_path


def cells(page, title, noise, method):
    """Return the cells of the first row of a section with this noise level and method."""
    (part,) = [text for text in re.split(r"^(?=## )", page, flags=re.MULTILINE) if text.startswith(f"## {title}\n")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
    return next(row for row in rows if row[0] == noise and row[2] == f"`{method}`")


def test_the_page_shows_the_results_and_preserves_other_sections(perdure, study):
    run = ("reproduce", "retraining", "--data-dir", study, "--out", "kept", "--page", "pages/retraining.md")
    page_file = study / "pages/retraining.md"
    perdure(*run, "--only", "tiny")
    first = page_file.read_text()
    assert "Not run yet (`--only`): `tiny-sweep`, `tiny-own`." in first
    assert "## Tiny, finer" not in first
    perdure(*run, "--only", "tiny-sweep")
    both = page_file.read_text()
    assert "Not run yet (`--only`): `tiny-own`." in both
    assert first.split("## Tiny\n")[1].strip() in both  # the other section is unchanged
    assert both.index("## Tiny\n") < both.index("## Tiny, finer\n")
    for tiny_study, top_down in ((retraining.STUDIES["tiny"], False), (retraining.STUDIES["tiny-sweep"], True)):
        result = retraining.run_retraining_study(tiny_study, study, study / "kept")
        stages = [*result.levels(), *(result.cascade()[1:] if top_down else [])]
        for stage in stages:
            for method in result.methods:
                row = cells(both, tiny_study.title, str(result.stages[stage].noise), method)
                scores = result.scores(method, DISTANCE, stage)
                assert row[1] == f"{np.mean(result.stages[stage].accuracy):.3f}"
                assert row[3] == f"{scores.mege.mean:.3f} [{scores.mege.low:.3f}, {scores.mege.high:.3f}]"
                assert row[4].split()[0] == f"{scores.reco_rate.mean:.3f}"
                assert row[5] == f"{scores.p_value:.3f}"
                assert row[7] == f"{scores.plain.same} / {scores.plain.different}"
    # A second run reads the stored results and gives the same numbers.
    perdure(*run, "--only", "tiny-sweep")
    assert page_file.read_text() == both
    for name in ("tiny.png", "tiny-classes.png", "tiny-sweep.png", "tiny-sweep-top-down.png"):
        assert (study / f"pages/retraining-{name}").stat().st_size > 1000


def test_the_class_that_each_network_predicts_can_be_explained(perdure, study):
    run = ("reproduce", "retraining", "--data-dir", study, "--out", "kept", "--page", "page.md", "--only", "tiny-own")
    perdure(*run)
    page = (study / "page.md").read_text()
    assert "the class that each network predicts is explained" in page
    own = retraining.STUDIES["tiny-own"]
    result = retraining.run_retraining_study(own, study, study / "kept")
    assert result.explaining["target"] == "own"
    assert [str(stage.noise) for stage in result.stages] == ["0 %"]
    assert f"{result.scores('grad', DISTANCE).mege.mean:.3f} [" in cells(page, "Tiny, own", "0 %", "grad")[3]
    assert "trend test" not in page
    assert not (study / "retraining-tiny-own.png").exists()


def test_the_three_warnings_are_computed_from_the_stored_maps(study):
    tiny_study = retraining.STUDIES["tiny"]
    result = retraining.run_retraining_study(tiny_study, study, study / "kept")
    lines = retraining.retraining_study_section(tiny_study, result, study).splitlines()
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in lines if "|" in line
    }
    scores = result.scores("expected_gradients", DISTANCE)
    whole = f"{scores.mege.mean:.3f} [{scores.mege.low:.3f}, {scores.mege.high:.3f}]"
    # L2 ignores positions: shifting all maps by the same offset changes nothing, cutting them does.
    assert rows["unchanged"][0] == rows["shifted by half the image"][0] == whole
    assert rows["central quarter only"][0] != whole
    maps = stored_retrain_maps(result, "expected_gradients", 1)
    assert len(maps) == result.folds
    pairs = result.stages[0].pairs["expected_gradients"]
    selected = (pairs.first == 1) & (pairs.second == 0)
    distance = np.sqrt(((maps[1] - maps[0]) ** 2).reshape(len(maps[0]), -1).sum(axis=1))
    assert pairs.distances["l2"][selected] == pytest.approx(distance, rel=1e-4)
    text = "\n".join(lines)
    assert "A constant map has MeGe 1.000" in text
    assert re.search(r"between similar classes [\d.nan]+ \(\d+ pairs\); all others [\d.]+ \(\d+ pairs\)", text)


def test_a_page_with_other_content_is_not_overwritten(perdure, study):
    page = study / "README.md"
    run = ("reproduce", "retraining", "--data-dir", study, "--only", "tiny", "--page", page)
    for text, problem in (("# Ours\n", "the title"), (f"{retraining.TITLE}\n\n## Notes\nmine\n", "'## Notes'")):
        page.write_text(text)
        assert problem in perdure(*run, code=2).stderr
        assert page.read_text() == text
    assert "--only: unknown study 'tin', did you mean" in perdure(*run[:5], "tin", code=2).stderr
