"""Take the pictures of the report that the documentation shows: light, dark, and on a phone.

    python tools/screenshots.py demo/report.html docs/images

Needs Chromium; without it the pictures stay as they are, and a line says so.
"""

import io
import shutil
import sys
from pathlib import Path
from typing import Any

from PIL import Image

FLAGS = ["--no-sandbox", "--disable-gpu"]
COLOURS = 160  # enough for flat pictures, a third of the size
PICTURES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 1180}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 1180}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 1180}, "color_scheme": "light", "device_scale_factor": 1.5},
}
PLACES = {"light": "body", "dark": "#viewer", "narrow": "#learning"}


def compact(png: bytes) -> bytes:
    """Return a PNG with few colours."""
    held = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS).save(held, format="PNG", optimize=True)
    return held.getvalue()


def take(page_file: Path, folder: Path, chromium: str) -> None:
    """Open the page in each way and save what is on the screen."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (a tool of developers)

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, options in PICTURES.items():
            page = browser.new_page(**options)
            page.goto(page_file.resolve().as_uri())
            page.wait_for_selector("html[data-drawn]", state="attached")
            page.evaluate("(place) => document.querySelector(place).scrollIntoView()", PLACES[name])
            page.wait_for_timeout(300)
            (folder / f"report-{name}.png").write_bytes(compact(page.screenshot()))
            page.close()
        browser.close()


def main() -> None:
    """Take the pictures, or say why not."""
    page_file, folder = map(Path, sys.argv[1:3])
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("chromium is not installed: the screenshots in the documentation stay as they are")
        return
    take(page_file, folder, chromium)


if __name__ == "__main__":
    main()
