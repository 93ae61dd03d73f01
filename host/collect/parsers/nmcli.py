# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse the output of ``nmcli -t``. Pure.

The forms are those of NetworkManager 1.42 to 1.56 (src/nmcli/utils.c). In a table, the
fields of a line are separated by colons, and a backslash escapes a colon or backslash
in a value. Profiles are lines ``SETTING.PROPERTY:VALUE`` without escapes, with an empty
line between two profiles.
"""

from __future__ import annotations

import re

from ovirt_rdma.host.facts.devices import Property

# nmcli shows these among the properties, but they are not settings.
_LEFT_OUT = ("connection.timestamp", "connection.read-only")
_SECRET = "password"  # noqa: S105  (Wake-on-LAN's is shown without --show-secrets)
_PROPERTY = re.compile(r"([a-z0-9-]+\.[A-Za-z0-9_.-]+):(.+)")


def table(text: str, columns: int) -> list[tuple[str, ...]]:
    """Return the rows that have ``columns`` fields, without escapes."""
    rows = (fields(line) for line in text.split("\n"))
    return [row for row in rows if len(row) == columns]


def fields(line: str) -> tuple[str, ...]:
    """Return the fields of a line of a table: ``a:b`` is two, ``a\\:b`` is one."""
    parts = [""]
    escaped = False
    for character in line:
        if character == "\\" and not escaped:
            escaped = True
            continue
        if character == ":" and not escaped:
            parts.append("")
        else:
            parts[-1] += character
        escaped = False
    return tuple(parts)


def profiles(text: str) -> dict[str, tuple[Property, ...]]:
    """Return the properties that have a value, by the profile's UUID.

    Secrets are left out, and so is the time of the last activation.
    """
    properties = {}
    for block in text.split("\n\n"):
        matches = map(_PROPERTY.fullmatch, block.split("\n"))
        shown = {match[1]: match[2] for match in matches if match}
        uuid = shown.get("connection.uuid")
        if uuid:
            properties[uuid] = tuple(
                Property(name, value)
                for name, value in shown.items()
                if name not in _LEFT_OUT and _SECRET not in name
            )
    return properties
