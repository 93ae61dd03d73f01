# SPDX-License-Identifier: GPL-2.0-or-later
"""Custom properties of networks: what a cluster level declares, and whether it fits.
Pure.

Declared by engine-config, which replaces the whole option; read over the API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ovirt_rdma.engine_sdk_tools.engine_facts import Cluster

# Ours: VDSM hands it to the hook before_network_setup.
IPOIB_MODE = "ipoib_mode"
OPTION = "UserDefinedNetworkCustomProperties"

# What a cluster level declares: names and regular expressions.
Declared = Mapping[str, str]


def against_properties(
    properties: Mapping[str, str],
    declared: Mapping[str, Declared],
    clusters: Sequence[Cluster],
) -> Iterator[str]:
    """Say which ``properties`` the levels of ``clusters`` do not have, or not so.

    ``declared`` is by level (``4.7``).
    """
    for level in sorted({cluster.version or "" for cluster in clusters}):
        known = declared.get(level, {})
        for name, value in properties.items():
            if name not in known:
                yield (
                    f"the custom property {name} is not declared for cluster level "
                    f"{level}: engine-config -s {OPTION}='{_all(known, name)}' "
                    f"--cver={level}, and restart ovirt-engine"
                )
            elif not _matches(known[name], value):
                yield (
                    f"{name}={value} is not what cluster level {level} declares: "
                    f"{known[name]}"
                )


def read_declared(text: str) -> dict[str, str]:
    """Return what the option ``UserDefinedNetworkCustomProperties`` declares:
    ``name=regex;name2=regex2``.
    """
    found = {}
    for part in text.split(";"):
        name, equals, pattern = part.strip().partition("=")
        if equals and name:
            found[name] = pattern
    return found


def _all(known: Declared, name: str) -> str:
    """The whole option, for setting it replaces what was declared before."""
    pattern = "^(auto|datagram|connected)$" if name == IPOIB_MODE else "^.*$"
    return ";".join(f"{n}={p}" for n, p in {**known, name: pattern}.items())


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.fullmatch(pattern, value) is not None
    except re.error:
        # Java's own; the engine decides.
        return True
