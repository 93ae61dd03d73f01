# SPDX-License-Identifier: GPL-2.0-or-later
"""tools/size.py counts what there is, and its walks are tests that exist."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tools import size

pytestmark = pytest.mark.selftest


def test_a_walk_names_the_files_that_it_enters():
    done = subprocess.run(
        [sys.executable, "tools/size.py", "--files", "connect"],
        cwd=size.TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "storage/vdsm/export.py" in done.stdout
    assert "cli/" not in done.stdout
    assert "tests/" not in done.stdout


def test_code_is_what_is_no_text_and_no_import():
    text = """'''What it is.

More.
'''
import sys  # a comment

# Why.
class A:
    '''Of its own.'''

    def f(self):
        return (
            1
        )
"""
    assert size.size_of(text) == size.Size(1, 14, 5, 1)


@pytest.mark.parametrize("walk", size.WALKS, ids=lambda walk: walk.name)
def test_the_test_of_a_walk_exists(walk):
    path, _, name = walk.test.partition("::")
    assert f"def {name.split('::')[-1]}(" in (size.TOP / path).read_text()
