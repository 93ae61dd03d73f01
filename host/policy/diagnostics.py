# SPDX-License-Identifier: GPL-2.0-or-later
"""What is wrong or odd at one place of a policy file."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Union

from ovirt_rdma.host.errors import Problem

# Where a value is: keys and, for lists, positions from 0.
KeyPath = tuple[Union[str, int], ...]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


class Remark(NamedTuple):
    """One sentence about the value ``key`` in line ``line`` (from 1).

    ``line`` is None and ``key`` empty for what concerns the whole file.
    """

    line: Optional[int]
    key: str
    sentence: str

    def at(self, where: str) -> str:
        """Return ``FILE:LINE: KEY: sentence`` for the file ``where``."""
        line = f":{self.line}" if self.line is not None else ""
        key = f" {self.key}:" if self.key else ""
        return f"{where}{line}:{key} {self.sentence}"


class PolicyProblem(Problem):
    """A policy file is not in order; ``errors`` has a Remark for each mistake."""

    def __init__(self, where: str, errors: tuple[Remark, ...], fix: str = "") -> None:
        super().__init__(
            "policy-invalid", "\n".join(error.at(where) for error in errors), fix
        )
        self.errors = errors


def key_text(path: KeyPath) -> str:
    """Return ``path`` as a person reads it: ``nfs.rules[2].port``.

    Rules count from 1 here, as they do wherever a rule is shown.
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            shown = part if _PLAIN_KEY.fullmatch(part) else repr(part)
            text += f".{shown}" if text else shown
    return text
