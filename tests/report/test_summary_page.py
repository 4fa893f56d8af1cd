"""The top of the report in a real browser: the answer, ranked learners, verdicts, explanations and release decisions."""

import re
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from perdure import Recorder
from perdure import audit as audit_records
from perdure.audits import audit_runs
from perdure.audits.clamp import PROPERTIES
from perdure.audits.shapc.results import LearnerDifference
from perdure.base.errors import InputError
from perdure.comparisons.release import ReleaseDecision, release_decisions
from perdure.exporters.formats.latex import TEXT_WIDTH, column_widths, fitted_tables
from perdure.exporters.shapc_tables import shapc_differences_table
from perdure.metrics.intervals import Difference
from perdure.policies import make_policy
from perdure.report import exported_tables, write_page
from perdure.report.page import slug
from tests.helpers.pages import HOSTILE, axe_script, chromium, synthetic_audit, synthetic_examples, synthetic_runs
from tests.helpers.trust_findings import synthetic_findings

NAMES = ("rehearsal", HOSTILE, "naive")
PHONE, SCREEN = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def audit():
    return replace(synthetic_audit(NAMES), trust=(synthetic_findings("runs/rehearsal/0", "rehearsal"),))


@pytest.fixture(scope="module")
def page_file(audit, tmp_path_factory):
    return write_page(audit, tmp_path_factory.mktemp("page") / "report.html", synthetic_examples(NAMES, 4))


def opened(browser, file, viewport=None, **options):
    page = browser.new_page(viewport=viewport or SCREEN, **options)
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-drawn]", state="attached")
    return page


@pytest.mark.parametrize("viewport", [SCREEN, PHONE], ids=["screen", "phone"])
def test_the_sentence_and_three_learners_are_above_the_fold(browser, page_file, audit, viewport):
    page = opened(browser, page_file, viewport)
    assert page.locator(".answer-sentence").first.inner_text() == audit.summary().sentence
    rows = page.locator("table.summary tbody tr")
    names = [learner.title for learner in audit.verdicts]
    assert page.locator("table.summary .name").all_inner_texts() == names
    third = rows.nth(2).bounding_box()
    assert page.locator(".answer-sentence").first.bounding_box()["y"] < third["y"]
    assert third["y"] + third["height"] <= viewport["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    page.close()


def test_the_first_chart_follows_the_answer(browser, page_file):
    page = opened(browser, page_file)
    assert page.locator("figure.chart").first.bounding_box()["y"] < 1500  # it was at 3,900 pixels
    order = page.locator("main > section").evaluate_all("all => all.map(one => one.id)")
    assert order.index("answer") < order.index("performance") < order.index("learners-section") < order.index("tables")
    assert page.locator("details.card[open]").count() == 0
    page.close()


def test_every_cell_has_a_verdict_in_a_word_and_a_shape(browser, page_file, audit):
    page = opened(browser, page_file)
    for position, learner in enumerate(audit.verdicts):
        for name, verdict in learner.verdicts.items():
            cell = page.locator(f"td:has(> #verdict-{position}-{name})")
            assert cell.locator("button .word").first.inner_text() == verdict.rating
            shown = "none" if verdict.rating == "not measured" else verdict.rating
            assert cell.locator("button use").first.get_attribute("href") == f"#shape-{shown}"
            has_number = cell.locator("button .value").count() == 1
            assert has_number == (verdict.rating in ("good", "weak", "bad", "undecided") and bool(verdict.number))
            if has_number and name == "reasons":  # never without the accuracy it belongs to
                assert f"at {100 * learner.accuracy:.0f} % accuracy" in cell.locator("button").first.inner_text()
    page.close()


def test_bars_are_on_a_common_scale(browser, page_file, audit):
    page = opened(browser, page_file)
    for position, learner in enumerate(audit.verdicts[:2]):
        verdict = learner["performance"]
        scale = page.locator(f"td:has(> #verdict-{position}-performance) button svg.scale")
        low, _, high = verdict.positions
        assert float(scale.locator(".range").get_attribute("x")) == pytest.approx(100 * low, abs=0.01)
        assert float(scale.locator(".range").get_attribute("width")) == pytest.approx(100 * (high - low), abs=0.01)
        limits = [
            float(limit)
            for limit in scale.locator(".limit").evaluate_all("all => all.map(one => one.getAttribute('x'))")
        ]
        assert limits == [50, 80]
    page.close()


def test_a_cell_expands_by_keyboard_and_closes_with_escape(browser, page_file):
    page = opened(browser, page_file)
    button = page.locator(".verdict-cell button").first
    about = page.locator("#verdict-0-performance")
    assert not about.is_visible()
    button.focus()
    page.keyboard.press("Enter")
    text = about.inner_text()
    for heading in (
        "What it means",
        "How it was computed",
        "What it must not be used for",
        "Thresholds: good from 80 %",
    ):
        assert heading in text
    page.keyboard.press("Escape")
    assert not about.is_visible()
    page.close()


def test_every_measure_in_a_table_can_be_explained(browser, page_file, audit):
    page = opened(browser, page_file, reduced_motion="reduce")
    page.locator("#table-measures").scroll_into_view_if_needed()
    heads = page.locator("#table-measures thead th")
    table = next(table for table in exported_tables(audit) if table.name == "measures")
    explained = [index for index, key in enumerate(table.terms) if key]
    assert len(explained) >= 15
    for index in explained[:3]:
        heads.nth(index).locator(".info").press("Enter")
        about = page.locator(f"#term-{slug(table.terms[index])}")
        assert about.is_visible()
        assert "What it must not be used for" in about.inner_text()
        page.keyboard.press("Escape")
    page.close()


def test_abbreviations_are_spelled_out_when_first_used(page_file):
    text = re.sub(r"<[^>]*>", "", page_file.read_text().split("<main>")[1].split("</main>")[0])
    for short, full in (("SHAPC", "SHAP value consistency"), ("CLAMP", "Continual Learning"), ("CL_score", "score")):
        section = text[text.index("What is uncertain") :] if "What is uncertain" in text else text
        assert full.lower() in section.lower(), short
    top = text[: text.index("What does it learn, keep and cost?", text.index("Select a cell"))]
    fold = re.sub(r"What it means.*?Close", "", top, flags=re.DOTALL)
    assert not re.search(r"\b(BWT|REM|FWT|SSS|MeGe|ReCo|WC-ACC|min-ACC)\b", fold)


def test_the_contents_follow_the_reader(browser, page_file):
    page = opened(browser, page_file, reduced_motion="reduce")
    current = page.locator("nav a[aria-current]")
    assert current.inner_text() == "Answer"
    page.evaluate("document.getElementById('reasons').scrollIntoView()")
    page.wait_for_timeout(150)
    assert current.all_inner_texts() == ["Reasons"]
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait_for_timeout(150)
    assert current.all_inner_texts() == ["Reproduce"]
    page.close()


def test_four_learners_fill_one_row(browser, tmp_path):
    page = opened(browser, audit_runs(synthetic_runs(("a", "b", "c", "d"))[:-1]).report(tmp_path / "page.html"))
    boxes = [page.locator(".card").nth(index).bounding_box() for index in range(4)]
    assert len({round(box["y"]) for box in boxes}) == 1
    row = page.locator(".cards").bounding_box()
    assert boxes[-1]["x"] + boxes[-1]["width"] == pytest.approx(row["x"] + row["width"], abs=2)
    page.close()


def test_fifty_learners_open_within_two_seconds_and_rows_can_be_shown(browser, tmp_path):
    names = tuple(f"learner-{index}" for index in range(50))
    file = audit_runs(synthetic_runs(names, tasks=10)).report(tmp_path / "page.html")
    assert file.stat().st_size < 15_000_000
    page = browser.new_page(viewport=SCREEN)
    begin = time.perf_counter()
    page.goto(file.as_uri())
    page.wait_for_selector("#average-accuracy svg")
    assert time.perf_counter() - begin < 20  # benchmarks/report_page.py measures it
    rows = page.locator("table.summary tbody tr:visible")
    assert rows.count() == 12
    page.locator("#all-rows").press("Enter")
    assert rows.count() == 51
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [SCREEN, PHONE], ids=["screen", "phone"])
def test_axe_finds_nothing_with_an_open_explanation(browser, page_file, tmp_path, scheme, viewport):
    page = opened(browser, page_file, viewport, color_scheme=scheme)
    page.locator(".verdict-cell > button").nth(1).click()
    page.evaluate(axe_script(tmp_path))
    found = page.evaluate("axe.run(document.getElementById('answer'), {resultTypes: ['violations']})")["violations"]
    assert [(violation["id"], violation["nodes"][0]["html"][:120]) for violation in found] == []
    page.close()


def test_a_full_capture_has_no_blank_regions(browser, page_file):
    page = opened(browser, page_file)
    # What is skipped outside the screen is blank in a picture of the whole page.
    tables = page.locator("table.sortable tbody")
    assert tables.count() > 5
    skipped = tables.evaluate_all(
        "all => all.filter(one => !one.closest('details:not([open])')"
        " && !one.checkVisibility({contentVisibilityAuto: true})).map(one => one.parentNode.id)"
    )
    assert skipped == []
    blank = page.evaluate(
        """[...document.querySelectorAll("main > section")].filter((part) =>
             part.getBoundingClientRect().height > 200 && part.innerText.trim().length < 20).map((part) => part.id)"""
    )
    assert blank == []
    page.close()


def test_a_learner_with_nothing_but_accuracies(browser, tmp_path):
    Recorder(tmp_path / "r", 2, learner="mine").after_task({}, [0.9, 0.1])
    file = audit_records(tmp_path / "r").report(tmp_path / "page.html")
    page = opened(browser, file)
    words = page.locator("table.summary .word").all_inner_texts()
    assert words[:5] == ["undecided", "not measured", "not measured", "not measured", "not measured"]
    assert "bad" not in words
    page.close()


def accuracies(folder, learner, final, seeds=4):
    for seed in range(seeds):
        value = final + 0.002 * seed
        recorder = Recorder(folder / learner / f"seed-{seed}", 2, learner=learner, seed=seed)
        recorder.after_task({}, [0.95, 0.1])
        recorder.after_task({}, [value, value])


def test_the_rules_of_a_policy_decide_on_each_learner(browser, tmp_path):
    accuracies(tmp_path, "kept", 0.9)
    accuracies(tmp_path, "lost", 0.3)
    audit = audit_records(tmp_path)
    policy = make_policy({"rule": [{"metric": "average_accuracy", "threshold": 0.8}]})
    decisions = release_decisions(audit, policy, None)
    by_name = {audit.learners[index].learner: decision.verdict for index, decision in decisions.items()}
    assert by_name == {"kept": "pass", "lost": "fail"}
    page = opened(browser, audit.report(tmp_path / "page.html", policy=policy))
    assert page.locator("table.summary thead th").nth(2).inner_text().startswith("Release")
    assert page.locator("td:has(> #verdict-0-release) .word").first.inner_text() == "pass"
    assert page.locator("td:has(> #verdict-1-release) .word").first.inner_text() == "fail"
    assert page.locator(".answer-sentence").nth(1).inner_text() == "Release gate (policy): fail: lost; pass: kept."
    page.close()


def test_a_learner_that_cannot_be_decided_on_is_undecided_with_the_reason(tmp_path):
    accuracies(tmp_path, "kept", 0.9)
    audit = audit_records(tmp_path)
    assert release_decisions(audit, None, None) == {}
    moved = replace(audit, learners=(replace(audit.learners[0], runs=("nowhere/0",)),))
    policy = make_policy({"rule": [{"metric": "average_accuracy", "threshold": 0.8}]})
    assert release_decisions(moved, policy, None)[0] == ReleaseDecision(
        "undecided", "Undecided: nowhere/0 was not found.", source="policy"
    )
    compared = release_decisions(audit, None, tmp_path / "kept")[0]  # records without networks cannot be compared
    assert compared.verdict == "undecided"
    assert compared.sentence.startswith("Undecided: ")
    with pytest.raises(InputError):
        release_decisions(audit, None, tmp_path / "nowhere")


def test_latex_tables_fit_the_text_width(audit, tmp_path):
    audit.tables(tmp_path)
    for table in exported_tables(audit):
        for part, keys in fitted_tables(table):
            assert sum(column_widths(part, keys)) + 12 * len(part.header) <= TEXT_WIDTH + 12
        text = (tmp_path / f"{table.name}.tex").read_text()
        assert text.count(r"\begin{tabular}") == len(fitted_tables(table))


def test_learners_are_in_ranked_order_in_the_charts(browser, tmp_path):
    names = ("worst", "middle", "best")
    runs = [
        replace(run, learner=dict(zip(("a", "b", "c"), names[::-1], strict=True))[run.learner])
        for run in synthetic_runs(("a", "b", "c"))[:-1]
    ]
    audit = audit_runs(sorted(runs, key=lambda run: names.index(run.learner)))
    assert np.array([entry.learner == name for entry, name in zip(audit.learners, names, strict=True)]).all()
    page = opened(browser, audit.report(tmp_path / "page.html"))
    assert page.locator("#learners label").all_inner_texts() == ["best", "middle", "worst"]
    page.close()


def test_charts_and_the_viewer_show_learners_in_ranked_order(browser, tmp_path):
    """The audit lists learners by name; every chart and legend lists them by rank."""
    names = ("c", "b", "a")  # ranked order: the first forgets least
    audit = synthetic_audit(names)
    by_name: dict[str, Any] = {
        "learners": tuple(sorted(audit.learners, key=lambda entry: entry.learner)),
        "shapc": tuple(sorted(audit.shapc, key=lambda result: result.learner)),
        "trust": tuple(synthetic_findings(f"runs/{name}/0", name) for name in "abc"),
    }
    fit = audit.clamp[0]
    reverse = {name: values[::-1] for name, values in fit.estimates.items() if name in PROPERTIES}
    by_name["clamp"] = (
        replace(
            fit,
            algorithms=fit.algorithms[::-1],
            estimates={**fit.estimates, **reverse},
            curves=tuple(replace(block, algorithms=block.algorithms[::-1]) for block in fit.curves),
        ),
    )
    file = write_page(replace(audit, **by_name), tmp_path / "page.html", synthetic_examples(("a", "b", "c"), 2))
    page = opened(browser, file)
    for chart in ("average-accuracy", "reasons-between", "fitted-curves"):
        shown = [name for name in page.locator(f"#{chart} .legend li").all_inner_texts() if "reference" not in name]
        assert shown == list(names), chart
    for chart in ("reasons-kept", "reasons-matrix", "reasons-spread", "reasons-outcomes", "clamp-properties"):
        texts = page.locator(f"#{chart} .panels text").evaluate_all("all => all.map(one => one.firstChild.textContent)")
        assert [text for text in texts if text in names][:3] == list(names), chart
    page.wait_for_selector(".maps")
    assert page.locator(".maps tbody th").all_inner_texts() == list(names)
    runs = page.locator("#trust-bias-shares-chart select[name=run] option").all_inner_texts()
    assert [run.split(",")[0] for run in runs] == list(names)
    page.close()


def test_a_cell_says_first_what_its_scale_means_and_what_was_measured(browser, page_file):
    page = opened(browser, page_file)
    page.locator("td:has(> #verdict-0-reasons) > button").click()
    texts = page.locator("#verdict-0-reasons > p").all_inner_texts()
    assert texts[1].startswith("Similarity to earlier reasons: ")
    assert texts[2] == (
        "Scale: 0 means no more similar to the earlier reasons than those of an untrained network, 100 % means identical "
        "reasons. The percentage is a position on this scale, not a share of the reasons."
    )
    about = page.locator("#verdict-0-reasons").inner_text()
    assert "a high value means the same reasons as before, right or wrong" in about
    assert "good reasons" not in about
    page.keyboard.press("Escape")
    page.locator("td:has(> #verdict-0-trust) > button").click()
    assert "Measured on one run (seed 0), 20 examples." in page.locator("#verdict-0-trust").inner_text()
    page.close()


def test_an_explanation_on_a_phone_can_be_closed_without_scrolling(browser, page_file):
    page = opened(browser, page_file, {"width": 390, "height": 640})
    page.locator("td:has(> #verdict-0-reasons) > button").click()
    about = page.locator("#verdict-0-reasons")
    assert about.evaluate("one => one.scrollHeight > one.clientHeight")
    box, outer = about.locator(".close .button").bounding_box(), about.bounding_box()
    assert outer["y"] <= box["y"]
    assert box["y"] + box["height"] <= min(640, outer["y"] + outer["height"])
    about.locator(".close .button").click(timeout=2000)
    assert not about.is_visible()
    page.close()


def test_explanations_of_columns_are_not_cut_off(browser, page_file):
    page = opened(browser, page_file)
    beyond = page.locator("table.sortable thead th").evaluate_all(
        """all => all.filter(head => head.querySelector(".info")?.offsetParent &&
             head.querySelector(".info").getBoundingClientRect().right > head.getBoundingClientRect().right)
             .map(head => head.textContent)"""
    )
    assert page.locator("table.sortable thead .info").count() > 15
    assert beyond == []
    page.close()


@pytest.mark.parametrize("viewport", [SCREEN, PHONE], ids=["screen", "phone"])
def test_the_line_on_the_example_is_plain_text(browser, page_file, viewport):
    page = opened(browser, page_file, viewport)
    page.wait_for_selector(".maps")
    line = page.locator("#viewer [role=status]")
    style = line.evaluate("one => [getComputedStyle(one).boxShadow, getComputedStyle(one).borderTopWidth]")
    assert style == ["none", "0px"]
    box, frame = line.bounding_box(), page.locator("#viewer").bounding_box()
    assert frame["x"] <= box["x"]
    assert box["x"] + box["width"] <= frame["x"] + frame["width"]
    page.close()


def test_charts_are_explained_by_what_they_show(page_file):
    text = page_file.read_text()
    figures = {part[: part.index('"')]: part for part in text.split('<figure class="chart" id="')[1:]}
    explained = {
        "average-accuracy": ["average_accuracy_by_step"],
        "forgetting": ["forgetting_by_step"],
        "reasons-kept": ["shapc_calibrated", "shapc_mean", "shapc_var"],
        "clamp-properties": ["efficiency", "retention", "translation"],
        "trust-noise": ["mege", "reco_rate", "reco_precision"],
        "trust-checkpoints-chart": ["checkpoint_pairs"],
    }
    for name, keys in explained.items():
        caption = figures[name].split("</figcaption>")[0]
        assert re.findall(r'popovertarget="term-(\w+)"', caption) == keys, name


def test_sections_begin_with_a_capital_letter_and_unclear_sentences_are_gone(page_file):
    text = re.sub(r"<[^>]*>", "", page_file.read_text())
    for start in (
        "SHAP value consistency (",
        "Continual learning analysis via",
        "Mean generalizability (",
        "Relative con",
    ):
        assert start in text, start
    for unclear in ("longer than 95 %", "Chance level: 0.", "0 before training", "is the reference:"):
        assert unclear not in text, unclear


def test_the_page_states_the_order_within_a_rank_and_uses_one_name(browser, page_file):
    page = opened(browser, page_file)
    assert page.locator("table.summary thead th").nth(2).inner_text().split("\n") == ["Performance", "average accuracy"]
    text = page.locator("#answer").inner_text()
    assert "Ranked by average accuracy; " in text
    assert "Learners with the same rank are ordered by their verdicts on the other questions." in text
    assert "final" not in text
    page.close()


def test_a_page_of_accuracies_says_what_is_needed_and_what_its_script_does(perdure, browser, tmp_path):
    for name, final in (("replay_0", 0.9), ("replay_1", 0.88), ("lwf", 0.89)):
        (tmp_path / f"{name}.csv").write_text(f".95,.1\n{final},{final}\n")
    perdure("score", "replay_0.csv", "replay_1.csv", "lwf.csv", "--report", "page.html")
    page = opened(browser, tmp_path / "page.html")
    needed = "The networks are needed, and these results hold numbers only."
    for section in ("reasons", "trust", "retraining"):
        assert needed in page.locator(f"#{section}").inner_text(), section
    assert "Run perdure audit replay_0.csv replay_1.csv lwf.csv --clamp" in page.locator("#causes").inner_text()
    page.locator("td:has(> #verdict-0-reasons) > button").click()
    assert needed in page.locator("#verdict-0-reasons").inner_text()
    page.keyboard.press("Escape")
    assert "lwf has one run and no interval; its value lies within the interval of replay." in page.content()
    script = page.locator("#provenance").inner_text()
    assert "This script reads the same files and verifies that they are unchanged, and scores them again" in script
    assert "trains" not in script
    assert "audit.json;" not in page.locator("footer").inner_text()
    page.close()


def test_the_script_of_records_is_described_by_what_it_does(tmp_path):
    accuracies(tmp_path, "kept", 0.9)
    text = audit_records(tmp_path).report(tmp_path / "page.html").read_text()
    assert "This script reads the same files and verifies that they are unchanged, and audits them" in text


def test_an_interval_that_excludes_0_next_to_a_p_value_is_explained(audit):
    difference = Difference(0.27, 0.14, 0.41, 0.013, 3, 32)
    pairs = tuple(
        LearnerDifference("a", name, "", replace(difference, low=low), p, "shapc_calibrated")
        for name, low, p in (("b", 0.14, 0.079), ("c", -0.1, 0.2), ("d", 0.14, 0.01))
    )
    table = shapc_differences_table(replace(audit, differences=pairs))
    assert "intervals of single pairs, p corrected over all pairs" in table.title
    alone = "The interval is for this pair alone and excludes 0; p is corrected for 3 pairs"
    assert [alone in str(row[-1]) for row in table.rows] == [True, False, False]
