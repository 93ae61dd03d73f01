# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.host.rule_cases import findings


@pytest.fixture
def judged():
    """What a rule says of a subject: exactly this verdict, and these words."""

    def hold(rule, host, policy, subject, verdict, *words):
        found, text = findings(rule, host, policy)[subject]
        assert found == verdict
        for one in words:
            assert one in text

    return hold
