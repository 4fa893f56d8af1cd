"""The page of the change-detection benchmark, written from stored results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from perdure.base.errors import InputError
from perdure.base.files import read_text, write_atomically
from perdure.figures import save
from perdure.figures.change_detection import change_detection_power
from perdure.metrics import Interval
from perdure.reproduce.change_detection import tables
from perdure.reproduce.change_detection.alternatives import ALTERNATIVES
from perdure.reproduce.change_detection.data_sets import BACKGROUND, DATA_SETS, EXAMPLES
from perdure.reproduce.change_detection.models import FIRST_SEED, SETTINGS
from perdure.reproduce.change_detection.planted_changes import CHANGES
from perdure.reproduce.change_detection.rates import FALSE_ALARMS, RESAMPLES
from perdure.reproduce.change_detection.results import DataSetResult, joined_provenance
from perdure.reproduce.change_detection.summary import UNCHANGED, compared_methods, fair_power, method_label
from perdure.reproduce.change_detection.trials import GROUPS, PARTITIONS, REFERENCES, SEED
from perdure.reproduce.formatting import format_paragraph

TITLE = "# Has the model changed? The change-detection benchmark"
SUMMARY, DESIGN, WINS, LIMITS = (
    "Summary",
    "Design",
    "Where the alternatives win",
    "What this does not show",
)
_KINDS = """\
- **retrained** (harmless): the same data, another seed for the initialization and the order of the examples.
- **planted cue**: a cue that is random in OLD's training data also predicts the class in NEW's.
- **swapped cues**: OLD is trained with cue A informative and cue B random, NEW with B informative and A random.
- **dropped feature**: a feature is replaced by its mean in NEW's training data.
- **mixed-up classes**: a share of the labels of two classes is swapped in NEW's training data."""
_LIMITS = """\
- The changes are planted and of one size per data set. Other changes may be easier or harder to detect.
- Networks are small, and differences between seeds are the only harmless changes. New training data of the same
  distribution are also harmless, but change a model more; references should then be trained on such data.
- The equal false-alarm rate needs many retrained models to find each method's threshold. They are rarely available: our test
  needs a few references, and the alternatives have fixed thresholds.
- The alternatives were written to compare periods or versions of models on tables. Pixels as features are our choice; they
  get all of the pixels, although monitors are usually given tens of features. Clarify computes nDCG per label, and
  attributions with Kernel SHAP; here all methods get the same attributions of the true class.
- Each method that needs references has the cost of training them; the alternatives do not have this cost."""


def write_change_detection_page(results: Mapping[str, DataSetResult], missing: Mapping[str, str], page: Path) -> None:
    """Write the page and its figure.

    ``missing``: why data sets have no results. Their sections of an existing page are kept.
    """
    kept = read_change_detection_page(page)
    ordered = [results[name] for name in DATA_SETS if name in results]
    sections = {SUMMARY: _summary(ordered, page), DESIGN: _design()}
    for name, data_set in DATA_SETS.items():
        if name in results:
            sections[data_set.title] = tables.data_set_section(data_set, results[name])
        elif data_set.title in kept:
            sections[data_set.title] = kept[data_set.title]
    sections |= {WINS: tables.alternatives_paragraph(ordered), LIMITS: _LIMITS}
    parts = [_introduction(ordered, missing), *(f"## {title}\n\n{text}" for title, text in sections.items())]
    write_atomically(page, ("\n\n".join(parts) + "\n").encode())


def read_change_detection_page(page: Path) -> dict[str, str]:
    """Return the sections of an existing page by heading; another page is refused, so that it is not overwritten."""
    if not page.exists():
        return {}
    head, *parts = re.split(r"^## ", read_text(page), flags=re.MULTILINE)
    if not head.startswith(TITLE):
        raise InputError(f"{page}: not a page of this benchmark. Pass another file with --page.")
    return {heading.strip(): text.strip() for heading, _, text in (part.partition("\n") for part in parts)}


def _introduction(results: list[DataSetResult], missing: Mapping[str, str]) -> str:
    covered = ", ".join(result.title for result in results)
    lines = [
        TITLE,
        "",
        format_paragraph(
            "Created by `perdure reproduce change-detection --data-dir DATA`; `--only NAME` runs one data set.",
            f"The summary covers {covered}.",
            *(f"Not run: {DATA_SETS[name].title} ({reason})." for name, reason in missing.items()),
        ),
    ]
    return "\n".join(lines)


def _summary(results: list[DataSetResult], page: Path) -> str:
    picture = page.parent / "change-detection-power.png"
    panels: dict[str, dict[str, dict[str, Interval]]] = {
        result.title: {
            method_label(method): {kind: fair_power(method, kind) for kind in CHANGES}
            for method in compared_methods(result)
            if method.examples in (0, EXAMPLES)
        }
        for result in results
    }
    page.parent.mkdir(parents=True, exist_ok=True)
    save(change_detection_power(panels, FALSE_ALARMS), picture)
    parts = [
        str(joined_provenance(results)),
        tables.false_alarm_verdict(results),
        tables.power_verdict(results),
        "False alarms at the default thresholds (ours: p < .05):",
        tables.false_alarm_table(results),
        format_paragraph(
            "Changes detected, by our test and by the best alternative with the same number of examples. Equal rate: each",
            f"method's threshold has a false-alarm rate of {100 * FALSE_ALARMS:.0f} % on the data set. Best alternative,",
            "default: only alternatives with at most 7 % false alarms at their default thresholds.",
        ),
        tables.contest_table(results),
        f"![Changes detected at a false-alarm rate of 5 %, by data set, change and method]({picture.name})",
        f"Our test with other numbers of references, at p < .05, {EXAMPLES} examples:",
        tables.reference_table(results),
    ]
    return "\n\n".join(parts)


def _design() -> str:
    methods = "\n".join(f"- **{method.title}**: {method.default}." for method in ALTERNATIVES)
    return "\n\n".join([_trials_text(), _KINDS, _methods_text(), methods, _statistics_text()])


def _trials_text() -> str:
    return format_paragraph(
        f"A trial has an old version (OLD), {REFERENCES} references that were retrained on the same data, and a new version",
        f"(NEW). Harmless trials: {PARTITIONS} random partitions of the harmless models into disjoint groups; each member of a",
        f"group is NEW once. Changed trials: every changed model is NEW once for each of {GROUPS} disjoint groups of harmless",
        f"models. Seed of the trials: {SEED}; models have the seeds {FIRST_SEED}, {FIRST_SEED + 1}, … (harmless) and",
        f"{FIRST_SEED + 10_000}, {FIRST_SEED + 20_000}, … (changed).",
        "These models were trained after the test was fixed. Other models, with the seeds 0, 1, …, were used to design it:",
        "there, the similarity of single reasons and the accuracy alone (the first version of the test) had 6.7 % false",
        "alarms and met the target for power in 3 of 14 cases. On those models about ten statistics and five ways to",
        "share the false-alarm rate were tried; the importance of features and the size of attributions were added, and",
        "the shares chosen. In the first round no method detected half of the changes of MNIST, nor of dropped features",
        "and mixed-up classes of CIFAR-10. On MNIST, cues were informative in 50 % of the examples, 4 x 4 pixels were",
        "dropped and 15 % of the labels swapped; on CIFAR-10, 4 x 4 pixels and 20 %. These changes were enlarged for this",
        "page, after those results were known. A pilot with three models per kind looked at accuracies, with and without",
        "the cue or region, and at no explanation; the dropped regions and the share of swapped labels of MNIST lie",
        "between the old and the piloted sizes and were not piloted themselves. Digits and Adult are unchanged. CIFAR-10",
        "has fewer models to save time.",
        "Kinds of versions:",
    )


def _methods_text() -> str:
    return format_paragraph(
        f"All methods get the same attributions: expected gradients of the true class with {SETTINGS.samples} samples and",
        f"{BACKGROUND} background examples, for {EXAMPLES} test examples balanced over classes; on Digits and Adult also for",
        "200. Our test is that of `perdure compare`: importance of features, single reasons, size of attributions and accuracy",
        "relative to retraining, p < .05. The alternatives compare OLD with NEW only. Features",
        "are pixels, with channels added, or the columns of the table. Alarms at the default thresholds:",
    )


def _statistics_text() -> str:
    return format_paragraph(
        "Accuracy counts as unchanged if the mean accuracies of changed and harmless models differ by less than",
        f"{UNCHANGED:g}; the criterion was fixed beforehand. The test set is the same for all models. Intervals are 95 %, from",
        f"a bootstrap with {RESAMPLES:,} resamples clustered by model: for false alarms, groups of models are resampled, as",
        "many as one partition has; for power, changed models and groups of known versions, and for the equal rate also the",
        "harmless groups that determine the threshold. If all trials agree, the interval is exact with one trial per changed",
        "model or group. With ties at the threshold, alarms are counted in proportion.",
    )
