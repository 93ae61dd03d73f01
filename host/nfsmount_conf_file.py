# SPDX-License-Identifier: GPL-2.0-or-later
"""The file that the nfsmount mode writes: its header, and whose a file found is.

The header has a digest of all that follows, so an edit by hand is seen.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.nfsmount_conf import Resolver, local_path
from ovirt_rdma.host.safe_file import read_file

_HEADER = """\
# Written by ovirt-rdma-host enable, mode nfsmount; ovirt-rdma-host disable removes it.
# Do not edit: change /etc/ovirt-rdma/policy.yaml, then: ovirt-rdma-host policy load
"""
_DIGEST = "# content: sha256:"

# Whose file it is.
ABSENT = "absent"
OURS = "ours"
EDITED = "edited"
FOREIGN = "foreign"


@dataclass(frozen=True)
class ConfFile:
    """``state`` is ABSENT, OURS, EDITED (ours, changed since) or FOREIGN; ``text``
    the whole file where it is OURS, else empty.
    """

    state: str
    text: str = ""


def with_header(body: str) -> str:
    """Return the whole file for the text of ``Rendered``."""
    return f"{_HEADER}{_DIGEST}{_digest(body)}\n{body}"


def read_conf_file(path: Path) -> ConfFile:
    """Say whose file stands at ``path``. Raises OSError where it is unreadable."""
    if path.is_symlink():
        return ConfFile(FOREIGN)
    try:
        text = read_file(path).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ConfFile(ABSENT)
    except IsADirectoryError:
        return ConfFile(FOREIGN)
    if not text.startswith(_HEADER):
        return ConfFile(FOREIGN)
    digest, _, body = text[len(_HEADER) :].partition("\n")
    if digest != f"{_DIGEST}{_digest(body)}":
        return ConfFile(EDITED)
    return ConfFile(OURS, text)


def families_of(text: str) -> Resolver:
    """Return a resolver for ``render`` that asks nobody: a name has the family that
    the file ``text`` gives it, and IPv4 where it gives none.
    """
    six = re.findall(r'^\[ MountPoint "(.*)" \]\nProto=rdma6$', text, re.MULTILINE)

    def resolve(server: str) -> tuple[str, ...]:
        start = local_path(Export(server, "/"))
        return (
            "::1" if any(place.startswith(start) for place in six) else "127.0.0.1",
        )

    return resolve


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()
