# SPDX-License-Identifier: GPL-2.0-or-later
"""The form of policy.yaml as JSON Schema (draft 7).

The form of the ``host:`` part of policy.yaml as JSON Schema (draft 7).

What a schema cannot say is in :mod:`ovirt_rdma.host.policy.validate_host` and
:mod:`ovirt_rdma.host.policy.validate_modules`.

The form of policy.yaml as JSON Schema (draft 7), one schema for each part.

What a schema cannot say is in :mod:`ovirt_rdma.host.policy.validate_nfs`; the ``host:``
part's is in :mod:`ovirt_rdma.host.policy.schema`.
"""

from __future__ import annotations

from typing import Any

from ovirt_rdma.host.policy.model import (
    LINK_LAYERS,
    OFFLOAD_CHOICES,
    PARTITIONS,
    POLICY_VERSION,
    PORT_MTUS,
    TRANSPORT_MODES,
    TRANSPORTS,
)

Schema = dict[str, Any]

# Text even where YAML 1.1 sees a number or a truth value: 04:00.0 is 240 to it (to
# the base 60), 0002010300001231 is octal, on is true.
_AS_WRITTEN: Schema = {"type": "string", "as_written": True}

# No IPv4 packet is smaller (RFC 791); IPoIB's connected mode ends at 65520
# (0x10000 - 16, ipoib.h).
_MIN_MTU, _MAX_MTU = 68, 65520
# mlx5 counts the representors of its VFs as ports, so InfiniBand's 254 are not all.
_MAX_PORT = 65535

_PKEY = "a P_Key such as 0x8001"

# A subnet manager takes seconds for a sweep, and a netdev that appears an hour late
# is no netdev that follows.
_MIN_INTERVAL_S, _MAX_INTERVAL_S = 5, 3600

_BY_NAME = (
    "a netdev is not matched by its name, which another card or boot can change; "
    "match its port instead: device, pci, port or guid "
    "(ovirt-rdma-host facts shows them)"
)

_MATCH: Schema = {
    # With nothing under it, it is refused for naming nothing.
    "type": ["object", "null"],
    "additionalProperties": False,
    "properties": {
        "link_layer": {"type": "string", "enum": list(LINK_LAYERS)},
        "device": {
            "type": "string",
            "minLength": 1,
            "description": "an RDMA device's name or a glob, such as mlx5_*",
        },
        "pci": {**_AS_WRITTEN, "description": "a PCI address such as 0000:04:00.0"},
        "port": {"type": "integer", "minimum": 1, "maximum": _MAX_PORT},
        "guid": {
            **_AS_WRITTEN,
            "description": "a port's GUID such as 0002:c903:00fb:1231",
        },
        "pkey": {**_AS_WRITTEN, "description": _PKEY},
    },
    "not_offered": dict.fromkeys(
        ("name", "netdev", "interface", "ifname", "interface_name"), _BY_NAME
    ),
}

_INTERFACE: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["match"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "description": "any text"},
        "match": _MATCH,
        "transport_mode": {"type": "string", "enum": list(TRANSPORT_MODES)},
        "mtu": {
            "type": ["integer", "string"],
            "minimum": _MIN_MTU,
            "maximum": _MAX_MTU,
            "pattern": r"^auto\Z",
            "description": f"auto, {_MIN_MTU} to {_MAX_MTU}",
        },
        "tso": {**_AS_WRITTEN, "enum": list(OFFLOAD_CHOICES)},
        "port_mtu": {"type": "integer", "enum": list(PORT_MTUS)},
        "pkey_children": {
            "type": ["array", "null"],
            "items": {**_AS_WRITTEN, "description": _PKEY},
        },
        "partitions": {"type": "string", "enum": list(PARTITIONS)},
    },
}

HOST_SCHEMA: Schema = {
    # A part, or a list, with nothing under it counts as left out.
    "type": ["object", "null"],
    "additionalProperties": False,
    "properties": {
        "interfaces": {"type": ["array", "null"], "items": _INTERFACE},
        "modules": {
            "type": ["array", "null"],
            "items": {
                "type": "string",
                "minLength": 1,
                "description": "a module's name such as nvme_rdma",
            },
        },
        "module_options": {
            "type": ["object", "null"],
            "additionalProperties": {
                "type": ["object", "null"],
                "additionalProperties": {
                    **_AS_WRITTEN,
                    "minLength": 1,
                    "description": "a value without blanks and quotes, such as 1,1",
                },
            },
        },
        "partitions_interval": {
            "type": "integer",
            "minimum": _MIN_INTERVAL_S,
            "maximum": _MAX_INTERVAL_S,
        },
    },
}


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
