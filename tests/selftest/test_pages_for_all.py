# SPDX-License-Identifier: GPL-2.0-or-later
"""The report and the documentation in a browser: axe-core finds nothing, and nothing is
cut off on a phone and on half a screen.

Chromium is Debian's, and axe-core npm's; where one is missing, the tests are skipped.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.browser import VIOLATIONS, axe_core, browser, chromium
from support.engine import report_site
from support.guide import TOP

PAGES = ("docs/index", "docs/tour", "docs/policy", "docs/rules/IPOIB-MTU-01", "search")
# Pictures that need scrolling; these are to fit from 1000 pixels on.
CUT = """[...document.querySelectorAll("svg.picture")].filter(one =>
    one.parentElement.scrollWidth > one.parentElement.clientWidth + 1).length"""

pytestmark = [
    pytest.mark.selftest,
    pytest.mark.engine,
    pytest.mark.skipif(not chromium(), reason="there is no chromium"),
]


@pytest.fixture(scope="module")
def axe():
    """Return the script of axe-core; it is fetched once."""
    script = axe_core()
    if script is None:
        pytest.skip("there is no npm to fetch axe-core")
    return script


@pytest.fixture(scope="module")
def page():
    with browser() as page:
        yield page


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """Return the folder of the documentation as HTML."""
    folder = tmp_path_factory.mktemp("html")
    words = ["-q", "-b", "html", "-c", "docs", "-d", f"{folder}/tree", ".", f"{folder}"]
    subprocess.run([sys.executable, "-m", "sphinx", *words], cwd=TOP, check=True)
    return folder


def faults(page, file: Path, axe: str) -> list[str]:
    found = []
    for width, dark in ((400, False), (1000, True)):
        page.open(file, width, dark=dark)
        if page.value_of("document.documentElement.scrollWidth > innerWidth"):
            found.append(f"{file.name} is wider than {width} pixels")
        if width >= 1000 and page.value_of(CUT):
            found.append(f"a picture of {file.name} is cut at {width} pixels")
        page.value_of(f"{axe}; 0")
        found += [f"{file.name}, {width}: {one}" for one in page.value_of(VIOLATIONS)]
    return found


# 250 hosts have nothing that 40 lack, and take minutes.
@pytest.mark.parametrize("hosts", [1, 3, 40])
def test_the_report(page, axe, tmp_path, hosts):
    report_site.main(hosts, str(tmp_path / "report.html"))
    assert faults(page, tmp_path / "report.html", axe) == []


@pytest.mark.parametrize("name", PAGES)
def test_the_documentation(page, axe, docs, name):
    assert faults(page, docs / f"{name}.html", axe) == []
