# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert facts to JSON (``facts -o json``) and read them strictly (``--facts FILE``).

A dump that this version does not understand completely is refused, with the place of
the first mistake.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.model import Facts, Route
from ovirt_rdma.host.system.json_codec import Records, plain
from ovirt_rdma.host.system.json_document import (
    Envelope,
    UnreadableJson,
    WrongRecord,
    WrongVersion,
    read_json,
)

_MAKE = "ovirt-rdma-host facts -o json"
_FIX = f"regenerate it on the host it describes: {_MAKE}"
FACTS = Envelope("facts", 2)


class FactsProblem(Problem):
    """The file or data is not a facts dump of this schema version."""


def to_json_dict(facts: Facts) -> dict[str, Any]:
    """Return facts as dicts, lists, strings, numbers and None, keys in field order,
    after ``schema_version`` and ``kind``.
    """
    return FACTS.around(plain(facts))


def to_json(facts: Facts) -> str:
    """Return facts as JSON text that ends in a newline.

    Pure ASCII: bytes of the kernel that are not UTF-8 become ``\\udcXX`` escapes, which
    are read back as the same bytes.
    """
    return FACTS.text(plain(facts))


def from_json_dict(data: object, where: str) -> Facts:
    """Return the facts in ``data``, a result of :func:`to_json_dict`.

    ``where`` names the source in errors. Raises FactsProblem with the key path of the
    mistake: another schema version, a missing or unknown key, a value of the wrong
    type, or an end of a route that is not an IP address.
    """
    try:
        content = FACTS.content(data)
        return Records("the facts", _check, _OPTIONAL).read(Facts, content)
    except WrongVersion as wrong:
        raise FactsProblem(
            "facts-file-version",
            f"{where}: {wrong}",
            f"{_FIX} (with the version of ovirt-rdma that reads it)",
        ) from None
    except WrongRecord as wrong:
        raise FactsProblem("facts-file-invalid", f"{where}: {wrong}", _FIX) from None


def load(path: Union[str, Path]) -> Facts:
    """Return the facts in a JSON file.

    Raises FactsProblem if it cannot be read, is not JSON (with line and column) or is
    not a facts dump.
    """
    where = f"facts file {path}"
    try:
        data = read_json(path)
    except UnreadableJson as error:
        fix = _FIX if error.is_file else f"give the name of a file made with: {_MAKE}"
        raise FactsProblem("facts-file-unreadable", f"{where}: {error}", fix) from None
    return from_json_dict(data, where)


def _check(cls: Any, values: Mapping[str, Any]) -> tuple[str, str]:
    """Check what decisions need besides types: addresses must be IP addresses."""
    for key in _ADDRESSES.get(cls, ()):
        if values[key] is None:
            continue
        try:
            ipaddress.ip_address(values[key])
        except ValueError:
            return key, f"is {values[key]!a}, not an IP address"
    return "", ""


# Dumps for bug reports lack it where no network asks for a mode.
_OPTIONAL = frozenset({"ipoib_mode"})
# Fields that decisions use as IP addresses. Other addresses are the kernel's text.
_ADDRESSES = {Route: ("destination", "source")}
