"""The report of a comparison as one self-contained HTML file without scripts."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from perdure import __version__
from perdure.audits import Interval
from perdure.audits.summary.text import clipped_score, is_clipped_score
from perdure.base.errors import escape_control_characters
from perdure.base.files import write_atomically
from perdure.comparisons import Comparison, ShownExample
from perdure.comparisons.results import describe_test
from perdure.report.comparison_charts import change_chart, feature_bars, reasons_chart, text_levels
from perdure.report.glossary import GLOSSARY, term
from perdure.report.page import asset_text, content_security_policy, page_environment
from perdure.report.viewer import CLIP_QUANTILE, LEVELS, palette_image, png_text

MOST_FEATURES = 15
GROUPS = {
    "same answer, different reasons": "Both versions give the same answer. The most different reasons come first.",
    "right to wrong": "OLD was right, NEW is wrong.",
    "wrong to right": "OLD was wrong, NEW is right.",
}
_TEST_ROWS = {
    "importance": "Importance of the features: cosine of NEW with the other versions",
    "reasons": "Reasons of single examples: similarity of NEW with the other versions",
    "scale": "Size of the attributions",
}
TERMS = (
    "accuracy_difference",
    "negative_flips",
    "expected_calibration_error",
    "brier_score",
    "log_loss",
    "reasons",
    "shapc",
    "test_importance",
    "test_reasons",
    "test_scale",
    "feature_importance",
    "comparison_verdict",
    "retraining_interval",
)
"""What can be expanded on the page."""
SYMBOLS = {"unchanged": "●", "changed": "▲", "undecided": "◆"}


def write_comparison_page(comparison: Comparison, path: Path) -> Path:
    """Write a comparison as one HTML file and return its path."""
    style = asset_text("style.css") + asset_text("comparison.css")
    page = (
        page_environment()
        .get_template("comparison.html.j2")
        .render(
            comparison=comparison,
            version=__version__,
            style=style,
            policy=content_security_policy(style, None),
            symbol=SYMBOLS[comparison.verdict],
            rows=_summary_rows(comparison),
            reasons_chart=reasons_chart(comparison),
            class_chart=change_chart(comparison.accuracy.by_class, "accuracy by class"),
            task_chart=change_chart(comparison.accuracy.by_task, "accuracy by task"),
            importance_chart=change_chart(comparison.reasons.importance[:MOST_FEATURES], "share of the attributions"),
            features_left_out=max(0, len(comparison.reasons.importance) - MOST_FEATURES),
            groups=_groups(comparison),
            settings=_settings(comparison),
            command=comparison_command(comparison),
            terms=[term(key) for key in TERMS],
            is_clipped=is_clipped_score(comparison.reasons.calibrated),
        )
    )
    write_atomically(path, page.encode())
    return path


def _summary_rows(comparison: Comparison) -> list[dict[str, str]]:
    """Return one row per question: OLD, NEW, their difference, what retraining would give, and whether NEW is beyond it."""
    rows = []
    accuracy = comparison.accuracy
    if accuracy.reason is None:
        rows.append(
            {
                "question": "Accuracy",
                "term": "accuracy_difference",
                "old": f"{accuracy.old:.4f}",
                "new": f"{accuracy.new:.4f}",
                "change": f"{accuracy.mean:+.4f} [{accuracy.low:+.4f}, {accuracy.high:+.4f}]",
                "retraining": _prediction(comparison, "accuracy"),
                **_verdict(comparison, "accuracy"),
            }
        )
        lost, gained = len(comparison.flips.negative), len(comparison.flips.positive)
        flips = f"{lost} right to wrong, {gained} wrong to right"
        rows.append(_similarity_row("Answers that changed", flips, "", "negative_flips"))
    for entry in comparison.confidences:
        difference = entry.difference
        rows.append(
            {
                "question": f"{entry.label[:1].upper()}{entry.label[1:]} (lower is better)",
                "term": entry.name if entry.name in GLOSSARY else "",
                "old": f"{entry.old:.4f}",
                "new": f"{entry.new:.4f}",
                "change": f"{difference.mean:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]",
                "retraining": "",
            }
        )
    score, shapc = clipped_score(comparison.reasons.calibrated), comparison.reasons.shapc
    calibrated = (
        f"– ({score.reason})" if math.isnan(score.mean) else f"{score.mean:.3f} [{score.low:.3f}, {score.high:.3f}]"
    )
    rows.append(_similarity_row("Similarity of the reasons, from 0 (untrained) to 1", calibrated, "", "reasons"))
    rows.append(_similarity_row("The same with sampling noise (SHAPC)", _clipped_text(shapc), "", "shapc"))
    for name, title in _TEST_ROWS.items():
        if name in comparison.tests:
            row = _similarity_row(title, "", _prediction(comparison, name), f"test_{name}")
            rows.append({**row, **_verdict(comparison, name)})
    return rows


def _verdict(comparison: Comparison, name: str) -> dict[str, str]:
    """Return whether NEW lies beyond what retraining gives, with the shape of the verdict."""
    test = comparison.tests.get(name)
    if test is None or math.isnan(test.low):
        return {"word": "no references" if test is None else "undecided", "shape": "undecided"}
    is_within = test.observed >= test.low and (name in ("importance", "reasons") or test.observed <= test.high)
    return {"word": "within", "shape": "good"} if is_within else {"word": "beyond", "shape": "bad"}


def comparison_command(comparison: Comparison) -> str:
    """Return the command that repeats the comparison; versions that are objects in Python have no path to pass."""
    settings = comparison.settings
    command = ["perdure", "compare", comparison.old, comparison.new]
    command += [word for reference in comparison.references for word in ("--reference", reference)]
    for name in ("method", "samples", "seed"):
        if settings.get(name) is not None:
            command += [f"--{name}", str(settings[name])]
    command += ["--examples", str(len(comparison.reasons.examples))]
    return shlex.join(escape_control_characters(word) for word in command)


def _clipped_text(score: Interval) -> str:
    shown = clipped_score(score)
    return "–" if math.isnan(shown.mean) else f"{shown.mean:.3f} [{shown.low:.3f}, {shown.high:.3f}]"


def _similarity_row(question: str, change: str, retraining: str, key: str) -> dict[str, str]:
    return {"question": question, "term": key, "old": "", "new": "", "change": change, "retraining": retraining}


def _prediction(comparison: Comparison, name: str) -> str:
    """Return the value of NEW and the interval in which retraining would put it."""
    return describe_test(name, comparison.tests[name]) if name in comparison.tests else "no references"


def _groups(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the examples by group, with their pictures."""
    groups = []
    for name, description in GROUPS.items():
        shown = [example for example in comparison.shown if example.group == name]
        if shown:
            examples = [_example(example) for example in shown]
            groups.append({"title": name, "description": description, "examples": examples, "kind": shown[0].view.kind})
    return groups


def _example(example: ShownExample) -> dict[str, Any]:
    view, change = example.view, example.change
    maps = [view.maps[name, 0] for name in ("OLD", "NEW")]
    limits = [float(np.quantile(np.abs(values), CLIP_QUANTILE)) or 1.0 for values in maps]
    calibrated = min(max(change.calibrated, 0.0), 1.0) if change.calibrated == change.calibrated else None
    content: dict[str, Any] = {"change": change, "calibrated": calibrated, "number": change.position + 1}
    if view.image is not None:
        content["image"] = png_text(Image.fromarray(view.image))
        content["maps"] = [_map_png(values, limit) for values, limit in zip(maps, limits, strict=True)]
    elif view.kind == "text":
        content["words"] = [
            list(zip(view.names, text_levels(values, limit), strict=True))
            for values, limit in zip(maps, limits, strict=True)
        ]
    elif view.names:
        content["bars"] = feature_bars(view.names, maps)
    return content


def _map_png(values: Any, limit: float) -> str:
    levels = np.clip(np.rint(values / limit * LEVELS), -LEVELS, LEVELS) + LEVELS
    return png_text(palette_image(levels.astype(np.uint8)))


def _settings(comparison: Comparison) -> dict[str, str]:
    """Return what is needed to judge and repeat the comparison."""
    settings = comparison.settings
    explained = len(comparison.reasons.examples)
    return {
        "OLD": comparison.old,
        "NEW": comparison.new,
        "references": ", ".join(comparison.references) or "none",
        "test examples": f"{comparison.examples}, {explained} of them explained",
        "explainer": f"{settings.get('method')}, {settings.get('samples')} samples per map, seed {settings.get('seed')}",
        "test data (SHA-256)": comparison.data,
        "perdure": __version__,
    }
