"""The page in a real browser: content, offline use, interaction, printing and accessibility."""

import base64
import csv
import hashlib
import io
import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

from perdure import metrics
from perdure.audits import ExampleView, audit_runs
from perdure.report import write_page
from tests.helpers.pages import HOSTILE, axe_script, chromium, synthetic_audit, synthetic_examples, synthetic_runs
from tests.helpers.trust_findings import synthetic_findings

NAMES = ("rehearsal", HOSTILE, "naive")


METHODS = ("expected_gradients", HOSTILE, "gradcam")


@pytest.fixture(scope="module")
def audit():
    findings = (
        synthetic_findings("runs/rehearsal/0", "rehearsal"),
        synthetic_findings(f"runs/{HOSTILE}/0", HOSTILE, METHODS),
        replace(synthetic_findings("runs/naive/0", "naive"), bias=None, retraining=None),
    )
    return replace(synthetic_audit(NAMES), trust=findings)


@pytest.fixture(scope="module")
def page_file(audit, tmp_path_factory):
    examples = synthetic_examples(NAMES, 12)
    return write_page(audit, tmp_path_factory.mktemp("page") / "report.html", examples)


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


def settle(page):
    """Wait until every chart and the viewer are drawn."""
    page.wait_for_selector("html[data-drawn]", state="attached")
    page.wait_for_selector(".maps", state="attached")


@pytest.fixture
def page(browser, page_file):
    """The page, opened on a wide screen; it fails the test if the page logs an error."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    opened.goto(page_file.as_uri())
    settle(opened)
    yield opened
    opened.close()
    assert errors == []


@pytest.mark.parametrize("width", [1280, 390])
def test_all_charts_are_drawn_and_nothing_is_requested(browser, page_file, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    requested: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.goto(page_file.as_uri())
    settle(page)
    assert [url for url in requested if not url.startswith("data:")] == [page_file.as_uri()]
    assert errors == []
    charts = page.locator("figure.chart")
    assert charts.count() == 18
    for index in range(charts.count()):
        chart = charts.nth(index)
        assert chart.locator("h3").inner_text()
        assert "Unit:" in chart.inner_text()
        panels = chart.locator(".panels svg")
        assert panels.count() >= 1
        assert all(panels.nth(i).get_attribute("aria-label") for i in range(panels.count()))
        assert panels.first.bounding_box()["width"] > 150
        assert chart.locator("button[data-save]").count() == 3
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_text_in_charts_is_at_least_10_pixels_on_a_phone(browser, page_file):
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto(page_file.as_uri())
    settle(page)
    sizes = page.evaluate(
        """[...document.querySelectorAll(".panels text")].map((text) => {
             const svg = text.ownerSVGElement;
             return parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
           })"""
    )
    assert min(sizes) >= 10
    page.close()


def test_markup_in_names_is_not_interpreted(page, page_file):
    assert page.title() == "perdure: is our continual learner reliable?"
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("main b", has_text="ewc").count() == page.locator("main b", has_text=HOSTILE).count()
    assert HOSTILE in page.locator(".card h3").all_inner_texts()
    assert page.locator("#ranking .who", has_text=HOSTILE).count() == 1
    assert page_file.read_text().count("</script>") == 3  # two of data, one of code; none from the name


def test_the_policy_forbids_everything_but_the_page_itself(page_file):
    text = page_file.read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    directives = dict(part.strip().split(" ", 1) for part in unescape(policy).split(";"))
    script, style = (
        base64.b64encode(hashlib.sha256(re.findall(pattern, text, re.DOTALL)[0].encode()).digest()).decode()
        for pattern in ("<script>(.*?)</script>", "<style>(.*?)</style>")
    )
    assert directives == {
        "default-src": "'none'",
        "script-src": f"'sha256-{script}'",
        "style-src": f"'sha256-{style}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert text.index("Content-Security-Policy") < text.index("<style>")


def test_the_page_violates_its_policy_nowhere(browser, page_file):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(
        "window.violations = []; addEventListener('securitypolicyviolation', (event) => "
        "violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`))"
    )
    page.goto(page_file.as_uri())
    settle(page)
    for details in page.locator("figure details summary").all()[:3]:
        details.click()
    page.locator("#viewer .later").click()
    page.locator("#viewer-under").check()
    page.locator("#theme").click()
    for kind in ("svg", "csv", "png"):
        with page.expect_download():
            page.locator(f"#accuracy-matrix button[data-save={kind}]").click()
    page.pdf()
    assert page.evaluate("violations") == []
    page.locator(".verdict-cell button").first.click()
    assert page.locator("#verdict-0-performance").is_visible()
    assert "gradient" in page.locator(".signed i").evaluate("part => getComputedStyle(part).backgroundImage")
    page.close()


def test_an_injected_script_does_not_run(browser, page_file, tmp_path):
    """Even if a name were not escaped, the policy would block it."""
    attack = (
        "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
        "<img src='https://example.org/leak'><a id=link href=\"javascript:document.title='owned'\">x</a>"
        "<iframe srcdoc=\"<script>parent.document.title='owned'</script>\"></iframe>"
        "<base href='https://example.org/'><style>main { display: none }</style>"
    )
    broken = tmp_path / "broken.html"
    broken.write_text(page_file.read_text().replace("<main>", f"<main>{attack}"))
    page = browser.new_page()
    failures: dict[str, str | None] = {}
    page.on("requestfailed", lambda request: failures.update({request.url: request.failure}))
    sent: list[str] = []
    page.on("response", lambda response: sent.append(response.url))
    page.add_init_script(
        "window.blocked = []; addEventListener('securitypolicyviolation', (event) => blocked.push(event.effectiveDirective))"
    )
    page.goto(broken.as_uri())
    settle(page)
    page.locator("#link").evaluate("link => link.click()")
    page.wait_for_timeout(50)
    assert page.title() == "perdure: is our continual learner reliable?"
    assert {"script-src-elem", "script-src-attr", "img-src", "base-uri", "style-src-elem"} <= set(
        page.evaluate("blocked")
    )
    assert failures["https://example.org/leak"] == "csp"  # blocked by the browser, not sent and failed
    assert not any(url.startswith("http") for url in sent)
    assert page.locator("main").is_visible()
    page.close()


def test_downloaded_tables_contain_no_formulas(browser, tmp_path):
    names = ("=HYPERLINK(1)", "-naive", "@x")
    page = browser.new_page()
    page.goto(write_page(synthetic_audit(names), tmp_path / "page.html", synthetic_examples(names, 2)).as_uri())
    settle(page)
    for button in ("button[data-table=table-measures]", "#average-accuracy button[data-save=csv]"):
        with page.expect_download() as waiting:
            page.locator(button).click()
        rows = list(csv.reader(io.StringIO(waiting.value.path().read_text())))
        assert {row[0] for row in rows[1:]} - {"joint (reference)", "joint"} == {f"'{name}" for name in names}
    page.close()


def ranked(page):
    rows = page.locator("#ranking li[data-score]")
    return {
        rows.nth(i).get_attribute("data-learner"): float(rows.nth(i).get_attribute("data-score"))
        for i in range(rows.count())
    }


def expected(audit, weights):
    scores = {
        entry.learner: metrics.cl_score({name: entry.measures[name].mean for name in metrics.CRITERIA}, weights)
        for entry in audit.learners
        if not entry.is_reference
    }
    return dict(sorted(scores.items(), key=lambda pair: -pair[1]))


@pytest.mark.parametrize("weights", ["W1", "W2", "W3"])
def test_named_weights_rank_like_metrics_cl_score(page, audit, weights):
    page.locator(f"button[data-weights={weights}]").click()
    assert list(ranked(page)) == list(expected(audit, weights))
    assert ranked(page) == pytest.approx(expected(audit, weights), abs=1e-5)
    assert page.locator(f"button[data-weights={weights}]").get_attribute("aria-pressed") == "true"


def test_moving_sliders_updates_the_ranking(page, audit):
    before = list(ranked(page))
    values = {"A": 0, "MS": 60, "SSS": 0, "CE": 30, "BWT+": 0, "REM": 0, "FWT": 10}
    for name, value in values.items():
        page.locator(f'#ranking input[name="{name}"]').fill(str(value))
    want = expected(audit, {name: value / 100 for name, value in values.items()})
    assert ranked(page) == pytest.approx(want, abs=1e-5)
    assert list(ranked(page)) == list(want)
    assert list(ranked(page)) != before
    page.locator('#ranking input[name="MS"]').press("ArrowLeft")
    assert page.locator('#ranking input[name="MS"]').get_attribute("aria-valuetext") == f"{100 * 59 / 99:.1f} %"


def test_a_learner_with_missing_criteria_is_ranked_only_if_they_are_ignored(browser, tmp_path):
    runs = synthetic_runs(("si", "mas"))
    runs[2:4] = [type(run)(run.run, run.learner, run.table, run.curriculum) for run in runs[2:4]]
    audit = audit_runs(runs)
    page = browser.new_page()
    page.goto(audit.report(tmp_path / "report.html").as_uri())
    assert list(ranked(page)) == ["si"]
    assert "missing: MS, SSS, CE" in page.locator("#ranking .unranked").inner_text()
    page.locator("#leave-out").check()
    mas = audit.learners[1]
    criteria = {name: mas.measures[name].mean for name in metrics.CRITERIA}
    assert ranked(page)["mas"] == pytest.approx(metrics.cl_score(criteria, "W1", renormalise=True), abs=1e-5)
    page.close()


def test_the_viewer_switches_examples(page):
    about, first = page.locator("#viewer .viewed"), page.locator("#viewer .map").first
    assert about.inner_text() == "Example 1 of 12: class 0, task 1"
    shown = first.get_attribute("style")
    page.locator("#viewer .later").click()
    assert about.inner_text() == "Example 2 of 12: class 1, task 2"
    assert page.locator("#viewer .map").first.get_attribute("style") != shown
    assert page.locator("#viewer .maps tbody tr").count() == 3
    page.locator("#viewer .strip button").nth(5).click()
    page.keyboard.press("ArrowRight")
    assert about.inner_text().startswith("Example 7 of 12")
    page.locator("#viewer-task").select_option("4")
    assert about.inner_text() == "Example 1 of 3: class 3, task 4"
    assert page.locator("#viewer .map").count() == 3  # only the last step comes after task 4
    page.locator("#viewer-task").select_option("")
    page.locator("#viewer-outcome").select_option("forgotten")
    assert about.inner_text().startswith("Example 1 of 9")
    assert page.locator("#viewer .wrong").first.inner_text() == "✗ class 1"


def test_tables_sort_in_both_directions_with_missing_values_last(page):
    table = page.locator("#table-measures")
    heads = table.locator("thead th")
    column = next(index for index, text in enumerate(heads.all_text_contents()) if text.startswith("forgetting"))

    def cells():
        return table.locator(f"tbody td:nth-child({column + 1})").evaluate_all(
            "all => all.map(one => one.dataset.value)"
        )

    for order, reverse in (("ascending", False), ("descending", True)):
        heads.nth(column).locator("button.sort").press("Enter")
        assert heads.nth(column).get_attribute("aria-sort") == order
        numbers = [float(cell) for cell in cells()[:3]]
        assert numbers == sorted(numbers, reverse=reverse)
        assert cells()[3] == ""  # the reference has no forgetting


def test_learners_can_be_deselected_in_the_charts(page):
    lines = page.locator("#average-accuracy .panels .series")
    assert lines.count() == 3
    page.locator("#learners input").first.uncheck()
    settle(page)
    assert lines.count() == 2


@pytest.mark.parametrize(("kind", "starts"), [("svg", "<svg"), ("csv", "learner,after step"), ("png", "\x89PNG")])
def test_charts_download(page, kind, starts):
    with page.expect_download() as waiting:
        page.locator(f"#average-accuracy button[data-save={kind}]").click()
    content = waiting.value.path().read_bytes()
    assert waiting.value.suggested_filename == f"average-accuracy.{kind}"
    assert content.decode("latin-1").startswith(starts)
    if kind == "csv":
        rows = list(csv.reader(io.StringIO(content.decode())))
        assert {row[0] for row in rows[1:]} == set(NAMES)
        assert len(rows) == 1 + 3 * 4


def test_the_shapc_matrix_follows_its_menus(page):
    chart = page.locator("#reasons-matrix")
    assert chart.locator(".panels svg").count() == 3
    before = chart.locator(".panels .number").all_text_contents()
    chart.locator("select[name=quantity]").select_option("floor")
    settle(page)
    assert set(chart.locator(".panels .number").all_text_contents()) == {"0.20"}
    chart.locator("select[name=quantity]").select_option("calibrated")
    settle(page)
    assert chart.locator(".panels .number").all_text_contents() == before
    chart.locator("select[name=seed]").select_option("1")
    settle(page)
    assert chart.locator(".panels .number").all_text_contents() != before


def test_the_bias_of_each_run_is_drawn_and_described(page, audit):
    chart = page.locator("#trust-bias-shares-chart")
    bias = audit.trust[0].bias
    assert chart.locator(".panels svg").count() == len(bias.sides)
    top = chart.locator(".panels svg").first
    assert f"expected_gradients {bias.explainers[0].cells[0][0].mean:.4f}" in top.get_attribute("aria-label")
    assert top.locator(".series").count() == 4  # Grad-CAM was measured at a layer and is not comparable
    assert "Not drawn: gradcam" in chart.locator(".note").inner_text()
    assert top.locator(".series[data-slot=random] .control").count() >= len(bias.shares)
    assert top.locator(".rule.control").count() == 1  # the noise floor
    assert bias.verdict.reading in page.locator("#trust .words").first.text_content()
    with page.expect_download() as waiting:
        chart.locator("button[data-save=csv]").click()
    rows = list(csv.DictReader(io.StringIO(waiting.value.path().read_text())))
    assert len(rows) == 5 * len(bias.shares) * len(bias.sides)
    assert float(rows[0]["bias"]) == pytest.approx(bias.explainers[0].cells[0][0].mean, rel=1e-5)
    assert float(rows[0]["noise floor"]) == pytest.approx(bias.explainers[0].floor[0, 0])
    chart.locator("select[name=run]").select_option("1")
    settle(page)
    assert HOSTILE in chart.locator(".legend").inner_text()
    assert page.locator("#trust img").count() == 0


def test_mege_and_reco_follow_run_and_distance(page, audit):
    chart = page.locator("#trust-noise")

    def label(panel):
        return chart.locator(".panels svg").nth(panel).get_attribute("aria-label")

    summary = audit.trust[0].retraining
    for distance in ("l2-unit", "l2"):
        chart.locator("select[name=distance]").select_option(distance)
        settle(page)
        scores = summary.levels[0].scores["expected_gradients"][distance]
        assert f"expected_gradients {scores.mege.mean:.2f}" in label(0)
        assert f"expected_gradients {scores.reco_rate.mean:.2f}" in label(1)
    chart.locator("details summary").click()
    chart.locator("tbody tr").first.wait_for(state="attached")  # the table is built after the click, in a toggle event
    assert chart.locator("tbody tr").count() == 4 * 5 * 3  # levels with noise on all layers, methods, scores
    compared = page.locator("#trust-checkpoints-chart")
    assert compared.locator("select[name=run] option").count() == 3
    assert compared.locator(".panels svg").first.locator(".mark.hollow").count() >= 3
    compared.locator("select[name=run]").select_option("2")  # a run without retrained networks
    settle(page)
    assert "retrained" not in compared.locator(".panels").text_content()


def test_the_trust_tables_sort_and_agree_with_the_audit(page, audit):
    table = page.locator("#table-trust-retraining")
    heads = table.locator("thead th").all_text_contents()
    column = next(index for index, text in enumerate(heads) if text.startswith("MeGe"))
    table.locator("thead th").nth(column).locator("button").press("Enter")
    values = table.locator(f"tbody td:nth-child({column + 1})").evaluate_all("all => all.map(one => one.dataset.value)")
    numbers = [float(value) for value in values]
    assert numbers == sorted(numbers)
    wanted = [
        scores["l2-unit"].mege.mean
        for findings in audit.trust[:2]
        for level in findings.retraining.levels
        for scores in level.scores.values()
    ]
    assert numbers == pytest.approx(sorted(wanted))
    assert page.locator("#table-trust-bias tbody tr").count() == 10
    assert page.locator("#table-trust-checkpoints tbody tr").count() == 15


def test_the_cards_answer_the_questions_on_trust_and_retraining(page, audit):
    page.locator("#open-cards").click()
    cards = page.locator(".card")
    first, hostile, naive = (cards.nth(index).inner_text() for index in range(3))
    assert audit.trust[0].bias.verdict.reading in first
    assert "1 of 3 explainers distinguish errors from agreement better than chance" in first
    assert "the two intervals do not overlap" in first
    assert f"{HOSTILE} {audit.trust[1].bias[HOSTILE].overall.mean:.4f}" in hostile
    assert "perdure trust bias RUN" in naive
    assert "No networks were retrained for comparison" in naive


def test_the_printed_page_fits_the_width_of_paper(browser, page_file):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(page_file.as_uri())
    settle(page)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 690, "height": 900})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 690
    wide = page.locator("#table-measures tbody tr").first
    assert wide.evaluate("one => getComputedStyle(one).display") == "block"
    name = "getComputedStyle(one, '::before').content"
    assert "average accuracy" in wide.locator("td").nth(2).evaluate(f"one => {name}")
    assert not page.locator("nav").is_visible()
    page.close()


def test_the_theme_button_changes_the_background(page):
    def paper():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    before = paper()
    page.locator("#theme").click()
    assert paper() != before
    page.locator("#theme").click()
    assert paper() == before


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    return axe_script(tmp_path_factory.mktemp("axe"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(browser, page_file, axe, scheme):
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    page.goto(page_file.as_uri())
    settle(page)
    page.locator("#average-accuracy details summary").click()
    page.evaluate(axe)  # the content security policy forbids to add a script to the page
    results = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [
        f"{violation['id']} ({violation['impact']}): {violation['help']}: "
        f"{[node['html'][:120] for node in violation['nodes'][:3]]}"
        for violation in results["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
    assert serious == []
    page.close()


def test_the_embedded_data_are_those_of_the_audit(page, audit):
    data = json.loads(page.locator("#audit-data").inner_text())
    assert [learner["name"] for learner in data["learners"]] == [entry.learner for entry in audit.learners]
    assert data["weights"]["W2"] == metrics.WEIGHTS["W2"]
    assert data["first_places"] == audit.first_places


def named_examples() -> list[ExampleView]:
    """Return a text and a row of a table, with a hostile word and a hostile feature."""
    words, features = ("the", HOSTILE, "", "works"), tuple(f"{HOSTILE} {number} = 3" for number in range(14))
    examples = []
    for kind, names in (("text", words), ("table", features)):
        values = np.linspace(-1, 1, len(names))
        maps = {(learner, step): values * (step + 1) for learner in NAMES for step in range(2)}
        predictions = dict.fromkeys(maps, "class 1")
        examples.append(ExampleView(None, "class 1", 0, maps, predictions, kind, names))
    return examples


@pytest.mark.parametrize("width", [1280, 390])
def test_texts_are_colored_words_and_rows_are_bars(browser, audit, tmp_path, width):
    file = write_page(audit, tmp_path / "report.html", named_examples())
    page = browser.new_page(viewport={"width": width, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.goto(file.as_uri())
    settle(page)
    cell = page.locator("#viewer .maps tbody tr").first.locator("td").nth(1)
    words = cell.locator(".word")
    assert words.all_inner_texts() == ["the", HOSTILE, "works"]  # padding is not drawn
    colors = [word.evaluate("part => getComputedStyle(part).backgroundColor") for word in words.all()]
    assert len(set(colors)) == 3
    assert words.first.get_attribute("title") == "the: -2.0"
    assert page.locator("#viewer-under").is_hidden()
    cell_width = cell.evaluate("part => [part.scrollWidth, part.clientWidth]")
    assert cell_width[0] <= cell_width[1] + 1  # words wrap inside their cell
    page.locator("#viewer .later").click()
    bars = page.locator("#viewer .maps tbody tr").first.locator("td").nth(1).locator(".bars li")
    assert bars.count() == 13
    assert bars.last.inner_text() == "2 smaller"
    assert bars.first.get_attribute("title").startswith(HOSTILE)
    assert page.title() != "owned"
    assert errors == []
    page.close()
