#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""``make screens``: the report and pages of build/docs as a browser shows them.

Writes build/screens/*.png, on a phone, on half a screen and on a whole one, light and
dark, to look at; and docs/pictures/report.png, which docs/report.md shows, and
portal.png and portal-domain.png of docs/portal.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "tests"))

from engine_double import jobs  # noqa: E402
from support.browser import Page, browser  # noqa: E402
from support.engine import report_site  # noqa: E402
from support.engine.portal_service import portal_site  # noqa: E402
from support.engine.webadmin import Webadmin  # noqa: E402

PAGES = ("index", "tour", "policy", "engine-session", "jobs/roce")
WIDTHS = (400, 1000, 1600)
# Summary, what needs attention, and the fabric.
_SHOWN = 1215


def portal(page: Page, pictures: Path) -> None:
    """Write the pictures of the portal's place, and of a domain's tab."""
    domains = ("data1", "data2", "data3", "data4")
    with (
        TemporaryDirectory() as folder,
        portal_site(Path(folder), 16, domains) as double,
    ):
        world = double.world
        job = jobs.add(world, "ovirt-rdma: convert to RDMA: data2 (by root@engine)")
        step = jobs.begin_step(world, job, "executing", "host01: maintenance")
        jobs.end_step(world, job, step, succeeded=True)
        jobs.begin_step(world, job, "executing", "host01: activation")
        data1 = {"id": world.domain("data1").id, "name": "data1", "type": "nfs"}
        clicks = (
            ("rdma", "location.hash = '#rdma'", "portal.png"),
            (
                "storage-rdma",
                "location.hash = '#storage-rdma'; "
                f"played.select('Storage', {json.dumps(data1)})",
                "portal-domain.png",
            ),
        )
        page.open(Webadmin(double, Path(folder)).url, 1000)
        for token, script, name in clicks:
            page.until(f"'{token}' in {{...played.places, ...played.tabs}}")
            page.value_of(script)
            page.until("document.querySelector('.rdma-matrix') !== null", "page.html")
            height = page.value_of("document.documentElement.scrollHeight", "page.html")
            room = f"document.getElementById('place').style.minHeight = '{height}px'"
            page.value_of(room)
            (pictures / name).write_bytes(page.picture(height + 80))


def main() -> None:
    """Write the pictures."""
    folder = TOP / "build/screens"
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "report.html"
    report_site.main(3, str(report))
    files = [report, *(TOP / f"build/docs/docs/{name}.html" for name in PAGES)]
    with browser() as page:
        for file in files:
            for width in WIDTHS:
                for scheme in ("light", "dark"):
                    page.open(file, width, dark=scheme == "dark")
                    shot = folder / f"{file.stem}-{width}-{scheme}.png"
                    shot.write_bytes(page.picture())
        page.open(report, 1000)
        (TOP / "docs/pictures/report.png").write_bytes(page.picture(_SHOWN))
        portal(page, TOP / "docs/pictures")
    print(f"screens: {folder}")


if __name__ == "__main__":
    main()
