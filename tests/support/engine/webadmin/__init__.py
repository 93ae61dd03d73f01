# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve a page that plays the administration portal, beside the engine's double: the
plugin's files, the theme, and the service of the data, all from one address.

PatternFly is that of oVirt's brand (3.59.3), from npm; without npm, pages have none.
"""

from __future__ import annotations

import functools
import json
import mimetypes
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional
from urllib.parse import unquote

from engine_double import EngineDouble
from engine_double.answers import Answer

from support.browser import package_of_npm
from support.engine.portal_service import ask_here, said, token_of
from support.guide import TOP

HERE = Path(__file__).parent
RESOURCES = TOP / "portal/resources"
DESCRIPTOR = json.loads((TOP / "portal/ovirt-rdma.json").read_text())
WEBADMIN = "/ovirt-engine/webadmin/"
THEME = "theme/00-ovirt.brand/bundled/patternfly/"
PATTERNFLY = "patternfly-3.59.3"
HTML = "text/html;charset=UTF-8"


@functools.cache
def _patternfly() -> Mapping[str, bytes]:
    archive = package_of_npm(PATTERNFLY)
    if archive is None:
        return {}
    found = {}
    with tarfile.open(archive) as opened:
        for one in opened:
            name = one.name.removeprefix("package/dist/")
            if name != one.name and name.startswith(("css/patternfly", "fonts/")):
                content = opened.extractfile(one)
                if content is not None:
                    found[name] = content.read()
    return found


class Webadmin:
    """The portal over ``double``, for a user of ``role``; ``folder`` has the data.

    ``missing`` are functions of the plugin API that an older portal lacks. ``instead``
    is what the service answers in place of data, None for what it says. The first place
    is shown after ``begins_after_ms``; with None once the plugin is in use.
    """

    def __init__(
        self,
        double: EngineDouble,
        folder: Path,
        *,
        role: str = "SuperUser",
        missing: tuple[str, ...] = (),
        begins_after_ms: Optional[int] = 50,
    ) -> None:
        self.double, self.folder = double, folder
        self.token = token_of(double, role)
        self.instead: Optional[Answer] = None
        self.asked: list[Mapping[str, str]] = []
        self.settings: dict[str, Any] = {
            "token": self.token,
            "missing": list(missing),
            "begins_after_ms": begins_after_ms,
            "descriptor": DESCRIPTOR,
        }
        double.beside[WEBADMIN] = self._page
        double.beside["/ovirt-rdma/"] = self._data
        # Browsers ask for it beside a page that names none.
        double.beside["/favicon.ico"] = lambda *words: Answer(200, b"", "image/png")

    @property
    def url(self) -> str:
        return f"{self.double.url.partition('/ovirt-engine')[0]}{WEBADMIN}"

    def _page(self, method: str, target: str, headers: Any, raw: bytes) -> Answer:
        name = unquote(target).partition("?")[0].removeprefix(WEBADMIN)
        if name == "":
            text = (HERE / "index.html").read_text()
            if not _patternfly():
                text = text.replace('<link rel="stylesheet"', "<link")
            page = text.replace("SETTINGS", json.dumps(self.settings))
            return Answer(200, page.encode(), HTML)
        if name.startswith(THEME):
            body = _patternfly().get(name.removeprefix(THEME))
        elif name.startswith("plugin/ovirt-rdma/"):
            # PluginResourceServlet.java:39-92
            file = RESOURCES / name.removeprefix("plugin/ovirt-rdma/")
            body = file.read_bytes() if file.parent == RESOURCES else None
        else:
            body = (HERE / name).read_bytes()
        if body is None:
            return Answer(404, b"", HTML)
        kind = (
            "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0]
        )
        more = {"Cache-Control": "no-cache", "X-Frame-Options": "SAMEORIGIN"}
        return Answer(200, body, kind or "application/octet-stream", more)

    def _data(self, method: str, target: str, headers: Any, raw: bytes) -> Answer:
        self.asked.append({k.lower(): v for k, v in headers.items()})
        if self.instead is not None:
            return self.instead
        # As portal/httpd passes it.
        lines = [f"{method} {target} HTTP/1.1"]
        if "Authorization" in headers:
            lines.append(f"Authorization: {headers['Authorization']}")
        answer = said(ask_here("\r\n".join([*lines, "", ""]).encode(), self.folder))
        kind = answer.headers["content-type"]
        return Answer(answer.status, answer.body, kind, {"Cache-Control": "no-store"})
