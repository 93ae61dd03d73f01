# SPDX-License-Identifier: GPL-2.0-or-later
"""A mark for tests that take long and that no Python sees otherwise than another: of
those that `make test` runs, the first of the hypervisors' takes them.
"""

from __future__ import annotations

import os
import sys

import pytest

_NAMED = os.environ.get("OVIRT_RDMA_TEST_HYPERVISOR_PYTHONS", "").split()
_THIS = f"python{sys.version_info[0]}.{sys.version_info[1]}"

on_one_python = pytest.mark.skipif(
    bool(_NAMED) and not _NAMED[0].endswith(_THIS),
    reason=f"left to {''.join(_NAMED[:1])}",
)
