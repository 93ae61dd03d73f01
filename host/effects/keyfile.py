# SPDX-License-Identifier: GPL-2.0-or-later
"""The file of a new NetworkManager profile: nm-settings-keyfile(5). Pure."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from typing import Optional

from ovirt_rdma.host.rules.ipoib_settings import P_KEY

FOLDER = "/etc/NetworkManager/system-connections"
UUID = "connection.uuid"

_COMMENT = "# Made by ovirt-rdma-host; ovirt-rdma-host revert takes it away."
# A keyfile has ethtool's switches as booleans (libnm-core nm-keyfile.c).
_SWITCHES = {"on": "true", "off": "false"}
_ETHTOOL = "ethtool."


def path_of(netdev: str) -> str:
    """Return the file of the profile that we make for a netdev."""
    return f"{FOLDER}/ovirt-rdma-{netdev}.nmconnection"


def text_of(properties: Mapping[str, str]) -> str:
    """Return the keyfile of a profile with ``properties``, named as nmcli does:
    ``infiniband.transport-mode``.
    """
    sections: dict[str, list[str]] = {}
    for name, value in properties.items():
        section, _, key = name.partition(".")
        escaped = _kept(name, value).replace("\\", "\\\\")
        sections.setdefault(section, []).append(f"{key}={escaped}")
    blocks = ["\n".join([f"[{name}]", *keys]) for name, keys in sections.items()]
    return "\n\n".join([_COMMENT, *blocks]) + "\n"


def value_in(text: str, name: str) -> Optional[str]:
    """Return a property that a keyfile has; None where it has not, or is none."""
    parser = configparser.RawConfigParser(
        delimiters=("=",),
        comment_prefixes=("#",),
        strict=False,
        empty_lines_in_values=False,
    )
    section, _, key = name.partition(".")
    try:
        parser.read_string(text)
        value = parser.get(section, key)
    except configparser.Error:
        return None
    return value.replace("\\\\", "\\")


def _kept(name: str, value: str) -> str:
    if name == P_KEY:
        return str(int(value, 16))  # in decimal digits
    return _SWITCHES[value] if name.startswith(_ETHTOOL) else value
