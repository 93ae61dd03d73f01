# SPDX-License-Identifier: GPL-2.0-or-later
"""Hold the policy files of a simulated host as one text, ``SimHost.policy_text``: that
of policy.yaml if it has no drop-ins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Optional

from ovirt_rdma.host.policy.load import PolicyFiles

_START = '{"policy.yaml": '


def joined(file: Optional[str], drop_ins: Mapping[str, str]) -> Optional[str]:
    """Return both as one text; None if there is neither."""
    if not drop_ins:
        return file
    return json.dumps({"policy.yaml": file, "policy.d": dict(drop_ins)})


def split(text: Optional[str]) -> PolicyFiles:
    """Return the files in a text of :func:`joined`."""
    if text is None or not text.startswith(_START):
        return PolicyFiles(text, {})
    return PolicyFiles(*json.loads(text).values())
