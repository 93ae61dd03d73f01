# SPDX-License-Identifier: GPL-2.0-or-later
"""Check docs/session.md, and how a story becomes Markdown; no guest boots here."""

from __future__ import annotations

import re
import shlex

import pytest

from lab import record_session
from lab.problem import LabProblem
from lab.record_session import DOCUMENT, as_markdown
from ovirt_rdma.cli.host.main import PROGRAM, parser
from ovirt_rdma.cli.parser import parse
from tools.verbs import verbs

pytestmark = pytest.mark.selftest

TOLD = """\

1. The state of things.
   $ cat here
     one

       two
   $ ls
   Somebody says something.
   $ cat there

2. Next.
     version: 1
"""
PAGE = """\
## The state of things

```text
$ cat here
one

  two
$ ls
```

Somebody says something.

```text
$ cat there
```

## Next

```text
version: 1
```
"""


def test_a_story_as_a_page():
    assert "\n".join(as_markdown(TOLD.splitlines())) == PAGE


def test_where_a_step_fails_the_page_stays(capsys, monkeypatch, tmp_path):
    def failing() -> str:
        raise LabProblem("not as expected: it is so")

    page = tmp_path / "session.md"
    page.write_text("as it was")
    monkeypatch.setattr(record_session, "DOCUMENT", page)
    monkeypatch.setattr(record_session, "record", failing)
    assert record_session.main() == 1
    assert page.read_text() == "as it was"
    assert "session: not as expected: it is so" in capsys.readouterr().err


def test_the_page_says_when_and_shows_the_whole_way():
    page = DOCUMENT.read_text()
    assert re.search(r" Recorded on 20\d\d-\d\d-\d\d ", page)
    verbs = re.findall(r"^\$ ovirt-rdma-host (\w+)", page, re.MULTILINE)
    way = ["check", "plan", "apply", "confirm", "status", "history", "revert"]
    shown = iter(verbs)
    assert all(verb in shown for verb in way), verbs


@pytest.mark.parametrize(
    "words",
    sorted(
        set(re.findall(r"^\$ ovirt-rdma-host ([^|\n]+)", DOCUMENT.read_text(), re.M))
    ),
)
def test_its_commands_are_still_such(words):
    """Check that the command has this verb and accepts its options."""
    verb, *_ = given = shlex.split(words)
    found, _ = parse(parser(given), given)
    ours = verbs(PROGRAM)
    assert found in [ours[name].verb for name in ours if name.split()[0] == verb]
