# SPDX-License-Identifier: GPL-2.0-or-later
"""Expect an error by its id and arguments, not by its wording."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from ovirt_rdma.host.errors import Problem


@contextlib.contextmanager
def problem(id: str, *arguments: object) -> Iterator[pytest.ExceptionInfo[Problem]]:
    """Expect a Problem with ``id`` whose text or fix names each of ``arguments``."""
    with pytest.raises(Problem) as caught:
        yield caught
    raised = caught.value
    assert raised.id == id, raised
    for argument in arguments:
        assert str(argument) in f"{raised}\n{raised.fix}"
