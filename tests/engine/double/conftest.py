# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import pytest
from support.engine.double_engine import Engine


@pytest.fixture
def make() -> Iterator[Callable[..., Engine]]:
    """Start engines for a test, and check at its end that they got no unknown
    request.
    """
    started: list[Engine] = []

    def start(**words: Any) -> Engine:
        started.append(Engine(**words))
        return started[-1]

    yield start
    for one in started:
        one.close()
        assert one.double.strict_errors == []


@pytest.fixture
def engine(make: Callable[..., Engine]) -> Engine:
    return make()
