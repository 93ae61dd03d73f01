# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json
from contextlib import contextmanager

import pytest

from ovirt_rdma.host.facts import model


@pytest.fixture
def problems() -> list[str]:
    """What a reader said it could not read."""
    return []


@pytest.fixture(scope="session")
def rewritten():
    """Give files of a host, one for all examples, other texts for a while."""

    @contextmanager
    def rewrite(host, changes):
        before = {}
        for path, text in changes:
            file = host.path / path.lstrip("/")
            before.setdefault(file, file.read_bytes() if file.exists() else None)
            host.write(path, text.encode("utf-8", "surrogateescape"))
        try:
            yield
        finally:
            for file, content in before.items():
                file.unlink() if content is None else file.write_bytes(content)

    return rewrite


@pytest.fixture(scope="session")
def survive_json():
    """Whether facts are the same after a facts file."""

    def do(facts):
        text = model.to_json(facts)
        return model.from_json_dict(json.loads(text), "here") == facts

    return do
