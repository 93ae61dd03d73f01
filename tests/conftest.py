# SPDX-License-Identifier: GPL-2.0-or-later
"""What holds for all tests."""

from __future__ import annotations

import sys

from hypothesis import settings

# The machine is shared: how long an example takes says nothing about our code.
settings.register_profile("ovirt-rdma", deadline=None)
settings.load_profile("ovirt-rdma")

# Of the developer's machine only: the lab, the tools, and what reads our own sources.
collect_ignore = (
    ["lab", "tools", "test_architecture.py"] if sys.version_info < (3, 11) else []
)
