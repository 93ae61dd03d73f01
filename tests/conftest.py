# SPDX-License-Identifier: GPL-2.0-or-later
"""What holds for all tests."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

# The programs under test buffer what they print, as they do for users: only so is it
# seen what becomes of output that nobody reads.
os.environ.pop("PYTHONUNBUFFERED", None)

# The machine is shared: how long an example takes says nothing about our code. Four
# Pythons take 25 examples each, together hypothesis' own 100; `make fuzz` goes deeper.
settings.register_profile(
    "ovirt-rdma",
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ovirt-rdma")
# Of `make fuzz`, which asks for it by name.
settings.register_profile(
    "fuzz",
    settings.get_profile("ovirt-rdma"),
    max_examples=int(os.environ.get("OVIRT_RDMA_FUZZ_EXAMPLES", "20000")),
)

# Of the developer's machine only: the lab, the benchmarks, the tools, and what reads
# our own sources.
_DEVELOPERS = ["lab", "bench", "tools", "test_architecture.py"]
collect_ignore = _DEVELOPERS if sys.version_info < (3, 11) else []

# The Pythons of EL9 and EL10. Where `make test` has one of them, tests marked
# `hypervisor`, which start a hypervisor's programs time and again, are left to it.
_HYPERVISORS = ((3, 9), (3, 12))
_LEFT_TO_THEM = (
    bool(os.environ.get("OVIRT_RDMA_TEST_HYPERVISOR_PYTHONS"))
    and sys.version_info[:2] not in _HYPERVISORS
)


def pytest_report_header() -> list[str]:
    left = "tests marked hypervisor are left to the Pythons of EL9 and EL10"
    return [left] if _LEFT_TO_THEM else []


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    kept, left = [], []
    for one in items:
        marked = _LEFT_TO_THEM and one.get_closest_marker("hypervisor")
        (left if marked else kept).append(one)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
