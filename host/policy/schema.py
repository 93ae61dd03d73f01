# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the form of policy.yaml as JSON Schema (draft 7), one schema per part.

Rules that a schema cannot express are in :mod:`ovirt_rdma.host.policy.validate_nfs`,
:mod:`ovirt_rdma.host.policy.validate_host` and
:mod:`ovirt_rdma.host.policy.validate_modules`.
"""

from __future__ import annotations

from typing import Any

from ovirt_rdma.host.errors import Sentence
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

# Text, also where YAML 1.1 reads a number or a truth value: 04:00.0 as 240 (base 60),
# 0002010300001231 as octal, on as true.
_AS_WRITTEN: Schema = {"type": "string", "as_written": True}

# The smallest MTU of IPv4 (RFC 791), and the largest of IPoIB's connected mode
# (0x10000 - 16, ipoib.h).
_MIN_MTU, _MAX_MTU = 68, 65520
# More than InfiniBand's 254: mlx5 counts the representors of its VFs as ports.
_MAX_PORT = 65535

_PKEY = "a P_Key such as 0x8001"

# A subnet manager takes seconds for a sweep. With more than an hour, netdevs would
# hardly follow the table.
_MIN_INTERVAL_S, _MAX_INTERVAL_S = 5, 3600

_BY_NAME = Sentence(
    "match-by-name",
    "a netdev cannot be matched by its name, because the name can change with another "
    "adapter or at boot; match its port instead: device, pci, port or guid "
    "(ovirt-rdma-host facts shows them)",
)

_MATCH: Schema = {
    # An empty match is refused by validate_host, because it names nothing.
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
    # A part or list without content counts as left out.
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


# The engine's timeout for a whole connectStorageServer call is 180 s. The waits for
# ports and for the server of one export must leave time for the mount itself.
_MAX_SETTLE_S = 120
_MAX_READINESS_S = 30
# On a busy host a helper process needs this long to start.
_MIN_READINESS_S = 0.1
_MAX_FAILURE_CACHE_S = 3600

# Keys of a rule, and of nfs.defaults for rules that do not have them.
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
    # A part or list without content counts as left out.
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
