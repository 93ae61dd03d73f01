# SPDX-License-Identifier: GPL-2.0-or-later
"""A picture shows each line of a terminal.

test_docs_statements.py compares all with what the commands print.
"""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tools import picture


def test_it_shows_each_line_as_text():
    drawn = ["$ ovirt-rdma domain verify", "host1  <FAIL & tcp>", "fix: heal"]
    root = ElementTree.fromstring(picture.svg("a title", drawn))
    texts = root.findall("{http://www.w3.org/2000/svg}text")
    assert ["".join(one.itertext()) for one in texts] == drawn


def test_a_page_without_the_recording_is_an_error():
    with pytest.raises(ValueError, match="no recording"):
        picture.recorded("engine-session.md", "Nothing")
