# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/matrix.md lists the documents that ovirt-rdma prints, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ovirt_rdma.cli.engine import main

pytestmark = pytest.mark.hypervisor

TOP = Path(__file__).parents[3]
KIND = re.compile(
    r'(?:output\.document\(\s*|_KIND = |(?:context|heal, output),\s+)"([a-z-]+)"'
)
VERBS = re.compile(r'"engine\.(\w+)\.\w+"')
# docs/host-preparation.md has these verbs.
OTHERS = {"deploy_hook", "prepare"}


def test_every_kind_of_document_is_told():
    folder = Path(main.__file__).parent
    modules = set(VERBS.findall(Path(main.__file__).read_text()))
    assert modules >= OTHERS
    names = {*modules - OTHERS, "session"}
    text = "".join((folder / f"{name}.py").read_text() for name in names)
    _, _, section = (TOP / "docs/matrix.md").read_text().partition("## The other ")
    rows = re.findall(r"^\| (`.+?`) \|", section, re.M)
    told = {word for row in rows for word in re.findall(r"`([a-z-]+)`", row)}
    assert told - {"kind"} == set(KIND.findall(text))
