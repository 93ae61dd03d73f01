# SPDX-License-Identifier: GPL-2.0-or-later
"""Set up all tests."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import sys
from pathlib import Path
from typing import Optional

import pytest
from hypothesis import HealthCheck, settings

# As in a terminal: `make check &`, nohup and some CI start programs with SIGINT
# ignored, and Python then raises no KeyboardInterrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# nohup ignores SIGHUP likewise, for the programs under test too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# The programs under test buffer their output, as for users: only then do tests show
# what happens to output that nobody reads.
os.environ.pop("PYTHONUNBUFFERED", None)
# Variables of an admin would send tests to a real engine. Our own stay.
for _name in [*os.environ]:
    if _name.startswith("OVIRT_") and not _name.startswith("OVIRT_RDMA_"):
        del os.environ[_name]

# `make test` names the Pythons of hypervisors that it has, "3.9 3.12": then tests are
# divided between Pythons.
_HYPERVISORS = os.environ.get("OVIRT_RDMA_TEST_HYPERVISOR_PYTHONS", "").split()
_SHARED_OUT = bool(_HYPERVISORS)

# The machine is shared: the time of an example proves nothing about our code. Each of
# several Pythons runs 10 examples, a single one 25; `make fuzz` runs more.
settings.register_profile(
    "ovirt-rdma",
    deadline=None,
    max_examples=10 if _SHARED_OUT else 25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ovirt-rdma")
# For `make fuzz`, which selects it by name.
settings.register_profile(
    "fuzz",
    settings.get_profile("ovirt-rdma"),
    max_examples=int(os.environ.get("OVIRT_RDMA_FUZZ_EXAMPLES", "20000")),
)

# Of the developer's machine only: the lab, the benchmarks, the tools, and what reads
# our own sources. `make test` runs them once (tox.ini, sources).
_DEVELOPERS = ["lab", "bench", "selftest", "test_architecture.py"]
_DEVELOPERS += ["test_what_removes.py"]
_DEVELOPERS += ["test_docs_reliability.py", "test_docs_commands.py"]
_DEVELOPERS += ["test_docs_statements.py", "test_file_versions.py"]
collect_ignore = _DEVELOPERS if _SHARED_OUT or sys.version_info < (3, 11) else []

# Tests marked `hypervisor` concern code that only runs on hypervisors and engine
# machines, or start its programs often: only the Pythons of EL9 and EL10 run them.
_HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
_LEFT_TO_THEM = _SHARED_OUT and _HERE not in _HYPERVISORS
_ALL_OF_IT = re.compile(r"^pytestmark = .*mark\.hypervisor\b", re.MULTILINE)
_ALL_OF_ENGINE = re.compile(r"^pytestmark = .*mark\.engine\b", re.MULTILINE)


def pytest_report_header() -> list[str]:
    left = "what runs on EL9 and EL10 only is left to their Pythons"
    return [left] if _LEFT_TO_THEM else []


def pytest_ignore_collect(
    collection_path: Path, config: pytest.Config
) -> Optional[bool]:
    """Do not even import a file that is left to other Pythons or deselected, as a
    whole.
    """
    passed_over = [_ALL_OF_IT] if _LEFT_TO_THEM else []
    if "not engine" in config.getoption("markexpr"):
        passed_over.append(_ALL_OF_ENGINE)
    if not passed_over or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text("utf-8")
    return any(pattern.search(text) for pattern in passed_over) or None


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    if not _LEFT_TO_THEM:
        return
    kept, left = [], []
    for one in items:
        (left if one.get_closest_marker("hypervisor") else kept).append(one)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


_NUMBERS = itertools.count()


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Like pytest's own, which searches all earlier folders for a free name."""
    folder = tmp_path_factory.getbasetemp() / f"folder{next(_NUMBERS)}"
    folder.mkdir(mode=0o700)
    return folder


def pytest_collection_finish() -> None:
    # Thousands of collected tests stay until the end: the garbage collector skips them.
    gc.collect()
    gc.freeze()
