"""The page of a comparison in a real browser: verdict first, no scripts, hostile names, narrow screens, accessibility."""

from dataclasses import replace

import numpy as np
import pytest

import perdure
from perdure.audits.summary.text import clipped_score
from tests.helpers.pages import HOSTILE, axe_script, chromium
from tests.helpers.versions import both_informative, trained

WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def comparison():
    references = [trained(seed) for seed in range(2, 5)]
    made = perdure.compare(
        trained(0), trained(0, (1,)), data=both_informative(), reference=references, samples=8, examples=12
    )
    group = replace(made.accuracy.by_class[0], name=HOSTILE)
    feature = replace(made.reasons.importance[0], feature=HOSTILE)
    return replace(
        made,
        old=HOSTILE,
        accuracy=replace(made.accuracy, by_class=(group, *made.accuracy.by_class[1:])),
        reasons=replace(made.reasons, importance=(feature, *made.reasons.importance[1:])),
    )


@pytest.fixture(scope="module")
def page_file(comparison, tmp_path_factory):
    return comparison.report(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize("width", WIDTHS)
def test_the_verdict_is_above_the_fold_and_the_page_fits_the_screen(browser, page_file, comparison, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri())
    verdict = page.locator(".verdict")
    assert comparison.because in verdict.inner_text()
    assert verdict.bounding_box()["y"] < 500
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.title() == "perdure: changed"  # the hostile name did not run
    assert all(url.startswith(("file:", "data:")) for url in requests)
    assert page.locator("script").count() == 0
    page.close()


def test_numbers_and_examples_are_those_of_the_comparison(browser, page_file, comparison):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(page_file.as_uri())
    text = page.locator("main").inner_text()
    accuracy = comparison.accuracy
    assert f"{accuracy.mean:+.4f} [{accuracy.low:+.4f}, {accuracy.high:+.4f}]" in text
    assert f"{len(comparison.flips.negative)} right to wrong" in text
    assert page.locator(".examples > li").count() == len(comparison.shown)
    titles = page.locator("svg title").all_text_contents()
    score = clipped_score(comparison.reasons.calibrated)
    assert "shown clipped to this range" in text
    assert f"OLD and NEW: {score.mean:.3f} [{score.low:.3f}, {score.high:.3f}]" in titles
    assert page.locator(".mark.reference").count() == 3
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(browser, page_file, tmp_path, scheme):
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    page.goto(page_file.as_uri())
    page.evaluate(axe_script(tmp_path))
    results = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [violation["id"] for violation in results["violations"] if violation["impact"] in ("serious", "critical")]
    assert serious == []
    page.close()


def test_images_show_the_maps_of_both_versions(tmp_path):
    import torch
    from torch import nn

    torch.manual_seed(0)
    old, new = (nn.Sequential(nn.Flatten(), nn.Linear(64, 2)) for _ in range(2))
    x = np.random.default_rng(0).random((12, 1, 8, 8)).astype(np.float32)
    labels = np.arange(12) % 2
    comparison = perdure.compare(old, new, data=(x, labels), samples=4, examples=12)
    page = comparison.report(tmp_path / "report.html").read_text()
    assert page.count("attribution map of NEW") == len(comparison.shown) > 0
    assert "style=" not in page  # the content security policy would block it
