# SPDX-License-Identifier: GPL-2.0-or-later
"""Test how tools/fuzz.py counts the examples of Hypothesis."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import fuzz

pytestmark = pytest.mark.selftest

PRINTED = """\
tests/host/test_a_fuzz.py::test_any[x y] PASSED
==================== Hypothesis Statistics =====================

tests/host/test_a_fuzz.py::test_any[x y]:

  - during reuse phase (0.01 seconds):
    - 2 passing examples, 0 failing examples, 0 invalid examples

  - during generate phase (0.10 seconds):
    - Typical runtimes: < 1ms
    - 97 passing examples, 1 failing examples, 5 invalid examples

  - Stopped because settings.max_examples=100

tests/host/test_b_fuzz.py::test_any:

  - during generate phase (0.10 seconds):
    - 50 passing examples, 0 failing examples, 0 invalid examples

======================= 3 passed in 1.00s =======================
"""


FILES = ["tests/host/test_a_fuzz.py", "tests/host/test_b_fuzz.py"]


def test_every_file_is_run_in_whatever_folder_it_is():
    named = {
        str((Path(folder) / name).relative_to(fuzz.CHECKOUT))
        for folder, _, names in os.walk(fuzz.CHECKOUT / "tests")
        for name in names
        if name.endswith("_fuzz.py")
    }
    assert set(fuzz.fuzz_files()) == named
    assert len(named) >= 10


def told_by(monkeypatch, text, code):
    """Let pytest print ``text`` and end with ``code``; return the result of fuzz."""
    program = f"import sys; print({text!r}); sys.exit({code})"
    real = subprocess.Popen
    monkeypatch.setattr(
        fuzz.subprocess,
        "Popen",
        lambda _, **keys: real([sys.executable, "-c", program], **keys),
    )
    monkeypatch.setattr(fuzz, "fuzz_files", lambda: FILES)
    return fuzz.main([])


@pytest.mark.parametrize("code", [0, 1, 5])
def test_the_exit_code_is_that_of_pytest(monkeypatch, capsys, code):
    assert told_by(monkeypatch, PRINTED, code) == code
    printed = capsys.readouterr()
    assert "     150 examples in 2 tests" in printed.out
    assert printed.err == ""


@pytest.mark.parametrize(
    "text",
    [
        "1 passed",
        PRINTED.replace("passing examples", "good ones"),
        PRINTED.replace("Hypothesis Statistics", "Statistics of Hypothesis"),
        PRINTED.replace("97 p", "0 p")
        .replace("50 p", "0 p")
        .replace("2 p", "0 p")
        .replace("1 failing", "0 failing"),
    ],
    ids=["no statistics", "other words", "other heading", "no examples"],
)
def test_no_examples_are_no_success(monkeypatch, capsys, text):
    assert told_by(monkeypatch, text, 0) == 1
    assert "no examples were counted" in capsys.readouterr().err


def test_a_file_of_which_no_example_ran_is_no_success(monkeypatch, capsys):
    monkeypatch.setitem(globals(), "FILES", [*FILES, "tests/host/deep/test_c_fuzz.py"])
    assert told_by(monkeypatch, PRINTED, 0) == 1
    assert "no examples of tests/host/deep/test_c_fuzz.py" in capsys.readouterr().err
