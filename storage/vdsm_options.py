# SPDX-License-Identifier: GPL-2.0-or-later
"""The option string that stock VDSM makes of an NFS storage connection. Pure.

Source: VDSM's storageServer.NFSConnection, unchanged from 4.40.14 on; the tests
compare both, letter for letter.
"""

from __future__ import annotations

TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from typing import Optional

DEFAULT_TIMEOUT = 100
DEFAULT_RETRANS = 3
# The engine's words for a storage connection's NFS version.
AUTO = "auto"
VERSIONS = ("3", "4", "4.0", "4.1", "4.2", AUTO)


def option_string(
    version: Optional[str],
    extra_options: str = "",
    timeout: int = DEFAULT_TIMEOUT,
    retrans: int = DEFAULT_RETRANS,
) -> str:
    """Return what VDSM passes to ``mount -o`` for an NFS storage connection.

    ``version`` is as VDSM's connection class takes it: ``"3"``, ``"4.2"``, or None
    for automatic. ``timeout`` in deciseconds, as in ``timeo=``.
    """
    options = ["soft", "nosharecache", f"timeo={timeout}", f"retrans={retrans}"]
    if version:
        major, _, minor = version.partition(".")
        options.append(f"nfsvers={major}")
        if minor:
            options.append(f"minorversion={minor}")
    extra = [item for item in extra_options.split(",") if item]
    # Local locks, unless the engine's options say otherwise (VDSM, bug 1550127).
    if version in (None, "3") and not {"lock", "nolock"} & set(extra):
        extra.append("nolock")
    return ",".join(options + extra)
