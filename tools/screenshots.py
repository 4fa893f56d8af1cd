"""Take the screenshots of the report for the documentation: light theme, dark theme, and a narrow screen.

    python tools/screenshots.py demo/report.html docs/images

Needs Chromium; without it, the existing screenshots are left unchanged.
"""

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image

FLAGS = ["--no-sandbox", "--disable-gpu"]
COLORS = 160  # enough for flat graphics and a third of the size
SCREENSHOTS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 1180}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 1180}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 1180}, "color_scheme": "light", "device_scale_factor": 1.5},
}
ELEMENTS = {"light": "body", "dark": "#viewer", "narrow": "body"}


def compact(png: bytes) -> bytes:
    """Return the PNG with a reduced palette."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(COLORS).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def take(page_file: Path, folder: Path, chromium: str) -> None:
    """Save one screenshot for each entry of SCREENSHOTS."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (a tool of developers)

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, options in SCREENSHOTS.items():
            page = browser.new_page(reduced_motion="reduce", **options)  # no smooth scrolling
            page.goto(page_file.resolve().as_uri())
            page.wait_for_selector("html[data-drawn]", state="attached")
            page.evaluate("(element) => document.querySelector(element).scrollIntoView()", ELEMENTS[name])
            page.wait_for_timeout(300)
            (folder / f"report-{name}.png").write_bytes(compact(page.screenshot()))
            page.close()
        browser.close()


def main() -> None:
    """Take the screenshots, or print why they cannot be taken."""
    page_file, folder = map(Path, sys.argv[1:3])
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("chromium is not installed; the screenshots in the documentation are left unchanged")
        return
    take(page_file, folder, chromium)


if __name__ == "__main__":
    main()
