# SPDX-License-Identifier: GPL-2.0-or-later
"""All that the product says, in one file: tests/data/messages.txt.

A change of wording is seen there in one diff; ``WRITE_GOLDEN=1 pytest
tests/test_messages.py`` writes it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.messages import as_text, messages

TOP = Path(__file__).parents[1]
GOLDEN = TOP / "tests/data/messages.txt"
LICENSE = "SPDX-License-Identifier: GPL-2.0-or-later"
PRODUCT = [
    TOP / name for name in ("cli", "engine_sdk_tools", "host", "storage", "vdsm_hooks")
]
ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
RULE = re.compile(r"[A-Z]+[A-Z0-9-]*-[0-9]{2}")


@pytest.fixture(scope="module")
def product_messages():
    return messages(PRODUCT)


def test_the_file_has_every_message(product_messages):
    text = f"# {LICENSE}\n\n{as_text(product_messages)}"
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text


def test_ids_are_words_with_hyphens(product_messages):
    ids = {one.id for one in product_messages}
    odd = {one for one in ids if not (ID.fullmatch(one) or RULE.fullmatch(one))}
    assert odd == {"(UnknownShape)", "{rule}", "{own.rule}"}
    assert len(ids) > 200


def test_what_is_not_seen_would_be_missed(tmp_path):
    (tmp_path / "room.py").write_text(
        "_FIX = 'run it again'\n"
        "class Gone(Problem): ...\n"
        "def look(name, twice):\n"
        "    text = f'{name} is gone' if twice else 'all is gone'\n"
        "    raise Gone('netdev-gone', text, _FIX)\n"
    )
    assert as_text(messages([tmp_path])) == (
        "netdev-gone\n  - all is gone\n  - {name} is gone\n      run it again\n"
    )
