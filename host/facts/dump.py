# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert facts to JSON (``facts -o json``) and read them strictly (``--facts FILE``).

A dump that this version does not understand completely is refused, with the place of
the first mistake.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.model import SCHEMA_VERSION, Facts, Route
from ovirt_rdma.host.system.json_codec import (
    Records,
    UnreadableJson,
    WrongRecord,
    kind,
    plain,
    read_json,
)

KIND = "facts"

_MAKE = "ovirt-rdma-host facts -o json"
_MOST_SHOWN = 60
_FIX = f"regenerate it on the host it describes: {_MAKE}"


class FactsProblem(Problem):
    """The file or data is not a facts dump of this schema version."""


def to_json_dict(facts: Facts) -> dict[str, Any]:
    """Return facts as dicts, lists, strings, numbers and None, keys in field order,
    after ``schema_version`` and ``kind``.
    """
    first = {"schema_version": facts.schema_version, "kind": KIND}
    return {**first, **plain(facts)}


def to_json(facts: Facts) -> str:
    """Return facts as JSON text that ends in a newline.

    Pure ASCII: bytes of the kernel that are not UTF-8 become ``\\udcXX`` escapes, which
    are read back as the same bytes.
    """
    return json.dumps(to_json_dict(facts), indent=2, allow_nan=False) + "\n"


def from_json_dict(data: object, where: str) -> Facts:
    """Return the facts in ``data``, a result of :func:`to_json_dict`.

    ``where`` names the source in errors. Raises FactsProblem with the key path of the
    mistake: another schema version, a missing or unknown key, a value of the wrong
    type, or an end of a route that is not an IP address.
    """
    if not isinstance(data, dict):
        raise FactsProblem(
            "facts-file-invalid",
            f"{where}: not a facts dump, {kind(data)} at the top",
            _FIX,
        )
    # First, because another version explains all other mistakes.
    version = data.get("schema_version")
    if "schema_version" in data and version != SCHEMA_VERSION:
        raise FactsProblem(
            "facts-file-version",
            f"{where}: schema_version is {_shown(version)}, this version reads only "
            f"{SCHEMA_VERSION}",
            f"{_FIX} (with the version of ovirt-rdma that reads it)",
        )
    if data.get("kind") != KIND:
        shown = _shown(data["kind"]) if "kind" in data else "missing"
        raise FactsProblem(
            "facts-file-invalid", f"{where}: kind is {shown}, not {KIND!r}", _FIX
        )
    rest = {key: value for key, value in data.items() if key != "kind"}
    try:
        return Records("the facts", _check).read(Facts, rest)
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
        raise FactsProblem("facts-file-unreadable", f"{where} {error}", fix) from None
    return from_json_dict(data, where)


def _shown(value: object) -> str:
    """Return a value for a sentence, or its type if it is long or nested."""
    short = isinstance(value, (int, float, str)) and len(ascii(value)) <= _MOST_SHOWN
    return ascii(value) if short else kind(value)


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


# Fields that decisions use as IP addresses. Other addresses are the kernel's text.
_ADDRESSES = {Route: ("destination", "source")}
