# SPDX-License-Identifier: GPL-2.0-or-later
"""The tables of docs/metrics.md are made from the metrics and the alert rules.

WRITE_GOLDEN=1 writes them.
"""

from __future__ import annotations

import os

from tools.metrics_reference import PAGE, page


def test_the_page_is_up_to_date():
    if os.environ.get("WRITE_GOLDEN"):
        PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    assert PAGE.read_text("utf-8") == page(PAGE.read_text("utf-8"))
