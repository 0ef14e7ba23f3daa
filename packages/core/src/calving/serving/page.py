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
    return HTMLResponse(text, headers={"content-security-policy": policy, "cache-control": "no-cache"})


@lru_cache(maxsize=1)
def _page() -> tuple[str, str]:
    text = files("calving.serving").joinpath("page.html").read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"connect-src 'self'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    policy = f"default-src 'none'; {allowed}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    return text, policy
