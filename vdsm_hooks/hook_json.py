# SPDX-License-Identifier: GPL-2.0-or-later
"""The network request that VDSM hands to a hook in a file."""

from __future__ import annotations

import json
import os
from typing import Optional

from ovirt_rdma.host.network_request import NetworkRequest, parsed
from ovirt_rdma.host.safe_file import read_file

# VDSM common/hooks.py
VARIABLE = "_hook_json"


def network_request() -> Optional[NetworkRequest]:
    """Return it; None where there is none, or none of VDSM's form."""
    try:
        data = read_file(os.environ[VARIABLE])
        return parsed(json.loads(data.decode("utf-8")))
    except (KeyError, OSError, ValueError, RecursionError):
        return None
