"""The status page: one file, which loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from importlib.resources import files

from starlette.responses import HTMLResponse, Response


def page() -> Response:
    """The page, with a content security policy: browsers run only the page's own scripts, so a table's name cannot
    inject one.
    """
    text, policy = _page()
    headers = {"content-security-policy": policy, "x-content-type-options": "nosniff", "cache-control": "no-cache"}
    return HTMLResponse(text, headers=headers)


@lru_cache(maxsize=1)
def _page() -> tuple[str, str]:
    text = files("calving.serving").joinpath("page.html").read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return text, policy
