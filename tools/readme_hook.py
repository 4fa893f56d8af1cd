"""Metadata hook of hatchling: the README as package indexes show it, with links to the repository instead of relative links."""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


def absolute_links(text: str, source: str, version: str) -> str:
    """Return Markdown whose relative links and pictures refer to the tag of a version in the repository ``source``."""
    tag = f"v{version}"
    text = re.sub(r"(!\[[^\]]*\])\((?!\w+:|#)([^)\s]+)\)", rf"\1({source}/raw/{tag}/\2)", text)
    return re.sub(r"(?<!!)(\[[^\]]*\])\((?!\w+:|#)([^)\s]+)\)", rf"\1({source}/blob/{tag}/\2)", text)


class ReadmeHook(MetadataHookInterface):
    """Sets the field ``readme``."""

    def update(self, metadata: dict[str, object]) -> None:
        """Add the text of README.md to the metadata."""
        root = Path(self.root)
        version = re.search(
            r'^__version__ = "(.+)"$', (root / "src/perdure/__init__.py").read_text("utf-8"), re.MULTILINE
        )
        urls = metadata["urls"]
        assert version  # noqa: S101
        assert isinstance(urls, dict)  # noqa: S101
        text = absolute_links((root / "README.md").read_text("utf-8"), urls["Source"], version[1])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
