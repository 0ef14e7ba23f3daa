"""Brings pages that live at the root of the repository into the site, and points links at them there."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
DEPLOY = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "deploy").rglob("*") if path.is_file())
PAGES |= {name: name for name in DEPLOY}
"""Files at the root, and what they become in the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them to the pages of the site."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, content=_text(source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that lead out of docs/, as they have to in the repository, lead to the page of the site instead."""
    folder = posixpath.dirname(page.file.src_uri)

    def here(match: re.Match[str]) -> str:
        target = PAGES.get(match[1])
        return match[0] if target is None else f"]({posixpath.relpath(target, folder or '.')})"

    return re.sub(r"\]\((?:\.\./)+([A-Z]+\.md|deploy/[\w@./-]+)\)", here, markdown)


def _text(source: str) -> str:
    text = (ROOT / source).read_text().replace("](docs/", "](")
    return re.sub(r"\]\(([A-Z]+\.md)", lambda match: f"]({PAGES.get(match[1], match[1])}", text)
