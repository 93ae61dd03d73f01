# SPDX-License-Identifier: GPL-2.0-or-later
"""Sentences on hosts, said once for all hosts of which they are true: also where they
differ by the host's own name or address only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ovirt_rdma.engine_sdk_tools.names import listed

# More names than this are a number.
NAMES_SHOWN = 4
# What stands for a host's name in a sentence on several.
_AT_FIRST, _ELSEWHERE = "the host", "HOST"


class OnHost(NamedTuple):
    """A sentence on one host, and its fix. ``verdict`` keeps apart what looks alike."""

    host: str
    address: str
    sentence: str
    fix: str = ""
    verdict: str = ""


class OnHosts(NamedTuple):
    """A sentence on all ``hosts``, and its fix; HOST stands for the name of each."""

    hosts: tuple[str, ...]
    sentence: str
    fix: str = ""
    verdict: str = ""

    @property
    def line(self) -> str:
        """The sentence behind the hosts' names."""
        return f"{listed(self.hosts, NAMES_SHOWN)}: {self.sentence}"


def said_once(said: Iterable[OnHost]) -> list[OnHosts]:
    """Return what is ``said``, each sentence once, in the order of their first."""
    alike: dict[tuple[str, str, str], dict[str, OnHost]] = {}
    for one in said:
        key = (one.verdict, _of_any(one, one.sentence), _of_any(one, one.fix))
        alike.setdefault(key, {}).setdefault(one.host, one)
    found = []
    for (verdict, sentence, fix), of in alike.items():
        only = next(iter(of.values())) if len(of) == 1 else None
        words = (only.sentence, only.fix) if only else (sentence, fix)
        found.append(OnHosts(tuple(of), *words, verdict))
    return found


def _of_any(one: OnHost, text: str) -> str:
    """Return ``text`` without the host's name and address."""
    # The longer first: the address may begin with the name.
    own = sorted({one.host, one.address} - {""}, key=len, reverse=True)
    if not any(name in text for name in own):
        return text
    names = "|".join(re.escape(name) for name in own)
    # Whole names only: no part of host10, of host1-b or of host1.example.com.
    whole = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)")
    return whole.sub(lambda at: _ELSEWHERE if at.start() else _AT_FIRST, text)
