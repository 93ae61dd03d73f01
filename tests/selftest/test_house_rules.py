# SPDX-License-Identifier: GPL-2.0-or-later
"""Test which lines tools/house_rules.py reports."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from tools.house_rules import findings, main

pytestmark = pytest.mark.selftest

LICENSE_LINE = "# SPDX-License-Identifier: GPL-2.0-or-later\n"
# Joined here, so that this file itself breaks no rule.
CHECKOUT = "/" + "work/main"
HOME = "/" + "root/.cache"


def found(name, text):
    return list(findings(PurePath(name), text))


@pytest.mark.parametrize(
    "name, text",
    [
        ("host/a.py", LICENSE_LINE + "x = 1\n"),
        ("tools/a", "#!/bin/bash\n" + LICENSE_LINE),
        ("docs/a.md", "<!-- SPDX-License-Identifier: GPL-2.0-or-later -->\n# A\n"),
        ("host/py.typed", ""),
        ("LICENSE", "GNU GENERAL PUBLIC LICENSE\n"),
        ("tests/data/facts/a.json", "{}\n"),
        ("lab/boot/init", LICENSE_LINE + f"mkdir {HOME}\n"),
        ("docs/b.md", f"<!-- {LICENSE_LINE} -->\n[facts](facts.md), facts/a.json\n"),
        ("a.py", LICENSE_LINE + "f'{tmp}/root/etc', 'run/work/x', '/srv/work'\n"),
    ],
)
def test_keeps_quiet(name, text):
    assert found(name, text) == []


def test_license_line_is_missing():
    (sentence,) = found("host/a.py", "\n" * 5 + LICENSE_LINE)
    assert sentence.startswith("host/a.py: none of its first 5 lines says SPDX")


@pytest.mark.parametrize("path", [CHECKOUT, HOME, "/" + "home/somebody/x"])
def test_folder_of_one_machine(path):
    (sentence,) = found("docs/a.md", f"<!-- {LICENSE_LINE} -->\n\nsee `{path}`\n")
    assert sentence.startswith("docs/a.md:4: names /")


@pytest.mark.parametrize("notes", ["facts/", "Facts/", "shared/facts/"])
def test_notes_that_are_not_in_the_repository(notes):
    comment = f"# It answers 409: {notes}" + "engine.md, section 7.\n"
    (sentence,) = found("tests/a.py", LICENSE_LINE + comment)
    assert (
        sentence == f"tests/a.py:2: cites {notes}" + "engine.md, not in the repository"
    )


def test_findings_fail_the_run(tmp_path, capsys):
    bad = tmp_path / "bad.py"
    bad.write_text("x = 1\n")
    good = tmp_path / "good.py"
    good.write_text(LICENSE_LINE)
    assert main([str(good)]) == 0
    assert capsys.readouterr().out == ""
    assert main([str(good), str(bad)]) == 1
    assert str(bad) in capsys.readouterr().out
