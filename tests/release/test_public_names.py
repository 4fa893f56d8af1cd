"""What docs/releases.md calls stable: names and options that no version removes without a deprecation."""

from __future__ import annotations

import importlib
import re

import perdure
from tests.release.helpers import ROOT, tool

public_names = tool("public_names")


def listed() -> list[str]:
    names: list[str] = public_names.NAMES.read_text("utf-8").splitlines()
    return names


def test_no_stable_name_or_option_is_removed():
    gone = set(listed()) - set(public_names.python_names()) - set(public_names.command_options())
    assert gone == set(), "removed without a deprecation (docs/releases.md)"
    assert len(listed()) > 500


def test_every_stable_name_can_be_imported():
    for name in listed():
        if not name.startswith("perdure."):
            continue
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def test_the_page_names_the_stable_and_the_experimental_modules():
    """Every public module is in one of the two lists."""
    page = (ROOT / "docs/releases.md").read_text("utf-8")
    stable, experimental = page.split("## Experimental")
    named = set(re.findall(r"`(perdure(?:\.\w+)?)`", stable.split("## Stable")[1]))
    assert named == set(public_names.STABLE)
    others = set(re.findall(r"`(perdure\.\w+)`", experimental.split("\n## ")[0]))
    submodules = {f"perdure.{name}" for name in perdure.__all__ if (ROOT / "src/perdure" / name).is_dir()}
    assert submodules <= named | others
    assert named & others == set()
