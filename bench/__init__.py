# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure what ovirt-rdma costs and saves, against named rivals (``make bench``)."""

import sys
from pathlib import Path

# Much of what is measured is made by the tests' fake hosts and doubles.
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
