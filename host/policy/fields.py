# SPDX-License-Identifier: GPL-2.0-or-later
"""Define every key of the policy: its name, type, range, default and meaning.

From this table come the reading of policy.yaml (:mod:`ovirt_rdma.host.policy.load`) and
of the stored policy (:mod:`ovirt_rdma.host.policy.json_form`), the JSON Schema for
editors and the tables of docs/policy.md (tools/policy_reference.py).
"""

from __future__ import annotations

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.ipoib import CONNECTED_MTU
from ovirt_rdma.host.policy.block_fields import BLOCK
from ovirt_rdma.host.policy.fabric import FABRIC
from ovirt_rdma.host.policy.forms import (
    Field,
    Keys,
    ListOf,
    MapOf,
    Number,
    Text,
)
from ovirt_rdma.host.policy.model import (
    AUTO,
    GUID_CHOICES,
    LINK_LAYERS,
    LINK_STATES,
    MAX_SETTLE_S,
    OFFLOAD_CHOICES,
    PARTITIONS,
    PARTITIONS_INTERVAL_S,
    POLICY_VERSION,
    PORT_MTUS,
    PORT_TYPES,
    TRANSPORT_MODES,
    TRANSPORTS,
    NfsRule,
)

_MIN_MTU = 68  # of IPv4 (RFC 791)
# More than InfiniBand's 254: mlx5 counts the representors of its VFs as ports.
_MAX_PORT = 65535
# A subnet manager takes seconds for a sweep. With more than an hour, netdevs would
# hardly follow the table.
_MIN_INTERVAL_S, _MAX_INTERVAL_S = 5, 3600
# A question is waited for 2 s, and the engine's timeouts for storage are minutes.
_MIN_HEALTH_S, _MAX_HEALTH_S = 5, 300
# The engine's timeout for a whole connectStorageServer call is 180 s. The waits for
# ports and for the server of one export must leave time for the mount itself.
_MAX_READINESS_S = 30
# On a busy host a helper process needs this long to start.
_MIN_READINESS_S = 0.1
_MAX_FAILURE_CACHE_S = 3600

_UNCHANGED = "left as it is"
_BY_NAME = Sentence(
    "match-by-name",
    "a netdev cannot be matched by its name, because the name can change with another "
    "adapter or at boot; match its port instead: device, pci, port or guid "
    "(ovirt-rdma-host facts shows them)",
)


def _written(allowed: str, check: str) -> Text:
    return Text(allowed, written=True, may_be_empty=True, check=check)


# Keys of a rule, and of nfs.defaults for rules that do not have them.
MOUNTING = (
    Field(
        "transport",
        Text(choices=TRANSPORTS),
        "see below",
        "from the defaults; must be in one of the two",
    ),
    Field("port", Number(1, 65535), "the server's RDMA port", default=NfsRule.port),
    Field(
        "options",
        Text(
            "mount options with commas between them",
            may_be_empty=True,
            check="options",
        ),
        "added to the engine's; see below",
        "none",
    ),
    Field(
        "readiness_timeout",
        Number(_MIN_READINESS_S, _MAX_READINESS_S, fraction=True),
        "seconds for the server to answer over RDMA",
        default=NfsRule.readiness_timeout,
    ),
    Field(
        "settle_timeout",
        Number(0, MAX_SETTLE_S, fraction=True),
        "seconds that vdsmd waits for an RDMA port to come up, from the first connect "
        "that finds it down",
        default=NfsRule.settle_timeout,
    ),
    Field(
        "failure_cache",
        Number(0, _MAX_FAILURE_CACHE_S, fraction=True),
        "seconds for which a failed RDMA mount decides for the server's exports, "
        "unless the server itself has said since that it is ready",
        default=NfsRule.failure_cache,
    ),
)

RULE = Keys(
    Field(
        "name", Text("any text"), "different for each rule", "`rule N`, counted from 1"
    ),
    Field(
        "server",
        Text("a name, an address, a network or a glob", check="server"),
        "compared with the text of the export; see below",
        required=True,
    ),
    Field(
        "path",
        Text("a path or a glob, such as /export/vm*", check="path"),
        "`*` matches `/` as well",
        "`*`, every path",
    ),
    *MOUNTING,
)

# Keys of policy.yaml that a drop-in does not have.
_ONLY_IN_POLICY = Sentence(
    "not-for-drop-in",
    "is not for a drop-in, which has only rules for exports; write it in policy.yaml",
)

NFS = Keys(
    Field(
        "defaults",
        Keys(*MOUNTING).or_null(),
        "for every rule that does not have the key itself",
    ),
    Field(
        "rules",
        ListOf(RULE),
        "the **first** rule that names an export wins",
        "no export is named",
    ),
    Field(
        "health_interval",
        Number(_MIN_HEALTH_S, _MAX_HEALTH_S),
        "seconds between two looks at the mounts by ovirt-rdma-health.service; see "
        "[Health](health.md)",
        "nobody watches the mounts",
    ),
)

MATCH = Keys(
    Field("link_layer", Text(choices=LINK_LAYERS), "of the port", "any"),
    Field(
        "device",
        Text("an RDMA device's name or a glob, such as mlx5_*", check="device"),
        "for example `mlx4_0`, `mlx5_*`",
        "any",
    ),
    Field(
        "pci",
        _written("a PCI address such as 0000:04:00.0", "pci"),
        "of the adapter; `04:00.0` is in domain 0000",
        "any",
    ),
    Field("port", Number(1, _MAX_PORT), "its number at the device", "any"),
    Field(
        "guid",
        _written("a port's GUID such as 0002:c903:00fb:1231", "guid"),
        "of the InfiniBand port: `0002:c903:00fb:1231`, `0x0002c90300fb1231`, "
        "`0002c90300fb1231`",
        "any",
    ),
    Field(
        "pkey",
        _written("a P_Key such as 0x8001", "pkey"),
        "of the IPoIB netdev",
        "any",
    ),
    not_offered=dict.fromkeys(
        ("name", "netdev", "interface", "ifname", "interface_name"), _BY_NAME
    ),
)

INTERFACE = Keys(
    Field(
        "name",
        Text("any text"),
        "different for each rule",
        "`interface N`, counted from 1",
    ),
    Field(
        "match",
        # An empty match is refused by validate_host, because it names nothing.
        MATCH.or_null(),
        "at least one key of the table below",
        required=True,
    ),
    Field("transport_mode", Text(choices=TRANSPORT_MODES), "IPoIB", _UNCHANGED),
    Field(
        "mtu",
        Number(_MIN_MTU, CONNECTED_MTU, word=AUTO),
        "in bytes; what is possible depends on the mode",
        _UNCHANGED,
    ),
    Field(
        "tso",
        Text(choices=OFFLOAD_CHOICES, written=True),
        "TCP segmentation offload",
        _UNCHANGED,
    ),
    Field(
        "port_mtu",
        Number(choices=PORT_MTUS),
        "mlx4, InfiniBand: the port's largest IB MTU",
        _UNCHANGED,
    ),
    Field(
        "pkey_children",
        ListOf(_written("a P_Key such as 0x8001", "child")),
        "P_Keys for which the port's base netdev has a child",
        "none is made",
    ),
    Field(
        "partitions",
        Text(choices=PARTITIONS),
        "IPoIB: the children follow the port's P_Key table",
        "none is made",
    ),
    Field(
        "port_type",
        Text(choices=PORT_TYPES),
        "mlx4: InfiniBand or Ethernet; see [VPI adapters](virtual-functions.md#vpi)",
        _UNCHANGED,
    ),
)

# PCI Express has 16 bits for it.
_MOST_VFS = 65535

VF_MATCH = Keys(
    *(MATCH.fields[key] for key in ("device", "pci", "guid")),
    not_offered=MATCH.not_offered,
)

VIRTUAL_FUNCTIONS = Keys(
    Field(
        "name",
        Text("any text"),
        "different for each rule",
        "`virtual functions N`, counted from 1",
    ),
    Field(
        "match",
        VF_MATCH.or_null(),
        "at least one of device, pci and guid: the physical function",
        required=True,
    ),
    Field("count", Number(1, _MOST_VFS), "how many there are", required=True),
    Field(
        "guids",
        Text(choices=GUID_CHOICES),
        "InfiniBand: `derived` from the host, the adapter and the VF's number",
        "`derived`",
    ),
    Field(
        "guests",
        Text("all, none, or numbers such as 0-11,14", written=True, check="guests"),
        "which are for virtual machines; the others get their driver on this host",
        "`all`",
    ),
    Field(
        "link_state",
        Text(choices=LINK_STATES),
        "mlx5: `auto` follows the port's link",
        _UNCHANGED,
    ),
    Field(
        "pkeys",
        ListOf(_written("a P_Key such as 0x8001", "pkey")),
        "mlx4: the P_Keys of each VF, in this order",
        _UNCHANGED,
    ),
)

HOST = Keys(
    Field(
        "interfaces",
        ListOf(INTERFACE),
        "the **first** rule that names a netdev wins",
        "every netdev is left as it is",
    ),
    Field(
        "modules",
        ListOf(Text("a module's name such as nvme_rdma", check="module")),
        "kernel modules to load at every boot",
        "none",
    ),
    Field(
        "module_options",
        MapOf(
            MapOf(
                Text(
                    "a value without blanks and quotes, such as 1,1",
                    written=True,
                    check="option",
                )
            ),
            "module: option: value",
        ),
        "options of kernel modules",
        "none",
    ),
    Field(
        "virtual_functions",
        ListOf(VIRTUAL_FUNCTIONS),
        "the **first** rule that names an adapter wins",
        "left as they are",
    ),
    Field(
        "partitions_interval",
        Number(_MIN_INTERVAL_S, _MAX_INTERVAL_S),
        "seconds between two looks at the P_Key tables, for `partitions: follow`",
        default=PARTITIONS_INTERVAL_S,
    ),
    Field(
        "metrics_folder",
        Text(
            "a folder such as /var/lib/node_exporter/textfile_collector",
            check="folder",
        ),
        "node_exporter's textfile folder, for [metrics](metrics.md) every 15 s",
        "no metrics are written",
    ),
)

_VERSION = Field(
    "version",
    Number(choices=(POLICY_VERSION,)),
    "the version of this form",
    "must be there, unless the file is empty",
    required=True,
)

POLICY = Keys(
    _VERSION,
    # A part without content counts as left out.
    Field("nfs", NFS.or_null(), "which exports are mounted over RDMA"),
    Field("host", HOST.or_null(), "how the RDMA ports of a host are configured"),
    Field("fabric", FABRIC.or_null(), "the partitions of the InfiniBand fabric"),
    Field("block", BLOCK.or_null(), "which block storage a host logs in to"),
)

DROP_IN = Keys(
    _VERSION,
    Field(
        "nfs",
        Keys(
            NFS.fields["rules"],
            not_offered=dict.fromkeys(("defaults", "health_interval"), _ONLY_IN_POLICY),
        ).or_null(),
    ),
    not_offered=dict.fromkeys(("host", "fabric", "block"), _ONLY_IN_POLICY),
)
