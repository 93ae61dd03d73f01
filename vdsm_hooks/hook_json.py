# SPDX-License-Identifier: GPL-2.0-or-later
"""The network request that VDSM hands to a hook in a file."""

from __future__ import annotations

import json
import os
from typing import Optional

from ovirt_rdma.host.network_request import NetworkRequest, parsed

# VDSM common/hooks.py
VARIABLE = "_hook_json"


def network_request() -> Optional[NetworkRequest]:
    """Return it; None where there is none, or none of VDSM's form."""
    try:
        with open(os.environ[VARIABLE], "rb") as file:  # noqa: PTH123
            return parsed(json.loads(file.read().decode("utf-8")))
    except (KeyError, OSError, ValueError, RecursionError):
        return None
