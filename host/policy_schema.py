# SPDX-License-Identifier: GPL-2.0-or-later
"""The form of policy.yaml as JSON Schema (draft 7), one schema for each part.

What a schema cannot say is in :mod:`ovirt_rdma.host.policy_checks`; the ``host:``
part's is in :mod:`ovirt_rdma.host.policy_host_schema`.
"""

from __future__ import annotations

from typing import Any

from ovirt_rdma.host.policy import POLICY_VERSION, TRANSPORTS
from ovirt_rdma.host.policy_host_schema import HOST_SCHEMA

Schema = dict[str, Any]

# The engine gives a whole connectStorageServer call 180 s; the waits of one
# export, for ports and for its server, have to leave room for the mount itself.
_MAX_SETTLE_S = 120
_MAX_READINESS_S = 30
# Below this a helper process on a busy host has not even started.
_MIN_READINESS_S = 0.1
_MAX_FAILURE_CACHE_S = 3600

# What a rule says, and what nfs.defaults says for rules that do not.
_MOUNTING: Schema = {
    "transport": {"type": "string", "enum": list(TRANSPORTS)},
    "port": {"type": "integer", "minimum": 1, "maximum": 65535},
    "options": {
        "type": "string",
        "description": "mount options with commas between them",
    },
    "readiness_timeout": {
        "type": "number",
        "minimum": _MIN_READINESS_S,
        "maximum": _MAX_READINESS_S,
    },
    "settle_timeout": {"type": "number", "minimum": 0, "maximum": _MAX_SETTLE_S},
    "failure_cache": {"type": "number", "minimum": 0, "maximum": _MAX_FAILURE_CACHE_S},
}

_NAMING: Schema = {
    "name": {"type": "string", "minLength": 1, "description": "any text"},
    "server": {
        "type": "string",
        "minLength": 1,
        "description": "a name, an address, a network or a glob",
    },
    "path": {
        "type": "string",
        "minLength": 1,
        "description": "a path or a glob, such as /export/vm*",
    },
}

NFS_SCHEMA: Schema = {
    # A part, or a list, with nothing under it counts as left out.
    "type": ["object", "null"],
    "additionalProperties": False,
    "properties": {
        "defaults": {
            "type": ["object", "null"],
            "additionalProperties": False,
            "properties": _MOUNTING,
        },
        "rules": {
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["server"],
                "properties": {**_NAMING, **_MOUNTING},
            },
        },
    },
}

POLICY_SCHEMA: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["version"],
    "properties": {
        "version": {"type": "integer", "enum": [POLICY_VERSION]},
        "nfs": NFS_SCHEMA,
        "host": HOST_SCHEMA,
    },
}
