# SPDX-License-Identifier: GPL-2.0-or-later
"""README's picture shows what was recorded."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tools import picture


def test_the_picture_is_that_of_the_session():
    """``make golden`` writes it."""
    drawn = picture.lines(picture.SESSION.read_text())
    assert picture.PICTURE.read_text() == picture.svg(drawn)


def test_it_shows_each_line_as_text():
    drawn = ["$ ovirt-rdma domain verify", "host1  <FAIL & tcp>", "fix: heal"]
    root = ElementTree.fromstring(picture.svg(drawn))
    texts = root.findall("{http://www.w3.org/2000/svg}text")
    assert ["".join(one.itertext()) for one in texts] == drawn


def test_a_page_without_the_recording_is_an_error():
    with pytest.raises(ValueError, match="no two recordings"):
        picture.lines("# Nothing")
