# SPDX-License-Identifier: GPL-2.0-or-later
"""What holds for all tests."""

from __future__ import annotations

import os
import sys

from hypothesis import HealthCheck, settings

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
