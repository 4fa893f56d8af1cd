"""The page in a real browser: everything shows, nothing is fetched, nothing overflows on a phone."""

import shutil

import numpy as np
import pytest

from perdure.audit import audit_runs
from perdure.record import Cost, Measurements

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    rng = np.random.default_rng(0)
    cost = Cost.from_rows([[10, 0, 0, 0, 99, 10]] * 4)
    runs = [
        Measurements(f"{name}-{seed}", name, rng.random((4, 4)), (0, 1, 2, 3), cost=cost, lifetime_bits=100)
        for name in ("naive", "<b>ewc</b>", "si")
        for seed in range(2)
    ]
    runs.append(
        Measurements("gem-0", "gem", np.tril(rng.random((4, 4))) + np.triu(np.full((4, 4), np.nan), 1), (0, 1, 2, 3))
    )
    return audit_runs(runs).report(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield opened
        opened.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_shows_everything_and_fetches_nothing(browser, page_file, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(page_file.as_uri())
    assert asked == [page_file.as_uri()]
    assert errors == []
    assert page.locator("figure svg").count() == 3
    assert all(page.locator("figure svg").nth(i).bounding_box()["width"] > 200 for i in range(3))
    headers = page.locator("table").first.locator("thead th").all_inner_texts()
    assert headers == ["measure", "naive", "<b>ewc</b>", "si", "gem"]  # a name is text, never markup
    assert page.get_by_text("accuracies on tasks not trained yet were not measured").count() >= 1
    assert page.locator("text=Which criteria say the same").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
