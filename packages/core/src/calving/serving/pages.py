"""The pages: the status page, and the one for those who are on call. They load nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from html import escape
from importlib.resources import files

from starlette.responses import HTMLResponse, Response

from calving.status.remedies import REMEDIES, section

_REST = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


def page() -> Response:
    """The page, with a content security policy: browsers run only the page's own scripts, so a table's name cannot
    inject one.
    """
    text, policy = page_text()
    return HTMLResponse(text, headers={"content-security-policy": policy, "cache-control": "no-cache"})


def on_call() -> Response:
    """What each reason means and what to do next: a page without scripts, with an anchor for each reason."""
    policy = f"default-src 'none'; style-src 'unsafe-inline'; {_REST}"
    return HTMLResponse(_on_call(), headers={"content-security-policy": policy, "cache-control": "no-cache"})


def _file(name: str) -> str:
    return files("calving.serving").joinpath(name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _on_call() -> str:
    sections = (
        f'<section id="{escape(name)}"><h2>{escape(name)}</h2><p>{escape(remedy.meaning)}</p>'
        f"<p>Next: <code>{escape(remedy.command)}</code></p><p>Manual: {escape(section(name))}</p></section>"
        for name, remedy in REMEDIES.items()
    )
    return _file("on-call.html").replace("<!-- reasons -->", "\n".join(sections))


@lru_cache(maxsize=1)
def page_text() -> tuple[str, str]:
    """The page and its content security policy."""
    style, script = _file("page.css"), _file("page.js")
    text = _file("page.html").replace("/* page.css */", style).replace("/* page.js */", script)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"connect-src 'self'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return text, f"default-src 'none'; {allowed}; {_REST}"
