# SPDX-License-Identifier: GPL-2.0-or-later
"""Expect the reasons of a refusal by their ids and by what they name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import pytest

from ovirt_rdma.engine_sdk_tools.model import ChecksFailed
from ovirt_rdma.host.errors import Problem, Sentence


def reason(sentences: Iterable[str], id: str, *arguments: object) -> Sentence:
    """Return the first of ``sentences`` with ``id`` that names all ``arguments``."""
    sentences = tuple(sentences)
    for sentence in sentences:
        named = all(str(argument) in sentence for argument in arguments)
        if named and isinstance(sentence, Sentence) and sentence.id == id:
            return sentence
    listed = [(getattr(sentence, "id", None), sentence) for sentence in sentences]
    pytest.fail(f"no reason {id!r} with {arguments} among {listed}")


@contextlib.contextmanager
def refused_for(
    id: str, *arguments: object, error: type[Problem] = ChecksFailed
) -> Iterator[pytest.ExceptionInfo[Problem]]:
    """Expect ``error`` with a reason ``id`` that names each of ``arguments``."""
    with pytest.raises(error) as caught:
        yield caught
    reason(caught.value.reasons, id, *arguments)
