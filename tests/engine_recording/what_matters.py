# SPDX-License-Identifier: GPL-2.0-or-later
"""List the parts of an answer that our client reads.

They are elements, statuses, events and faults.

Elements that are not here are compared in one direction only: the double must not
show what the engine does not have. Paths are dotted below the object's element; an
attribute id is written ``network@id``.
"""

from __future__ import annotations

# Statuses that change by themselves: their sequence is compared, not each answer.
MOVING = ("status", "spm.status")

_STORAGE = ("type", "address", "path", "nfs_version", "mount_options", "vfs_type")
_STORAGE += ("nfs_timeo", "nfs_retrans")
_VERSION = ("version.major", "version.minor")

# The product's readers: reader.py, job.py, fleet/feature_gate.py, conversion,
# domains/create.py, networks/attach.py.
READ: dict[str, tuple[str, ...]] = {
    "api": ("product_info.version.major", "product_info.version.minor"),
    "data_center": ("name", *_VERSION),
    "cluster": ("name", "data_center@id", "upgrade_in_progress", *_VERSION),
    "network": ("name", "data_center@id", "mtu", "vlan@id", "required", "usages.usage"),
    "host": (
        *("name", "address", "cluster@id", "ssh.port", "ssh.fingerprint"),
        *("ssh.public_key", "summary.total", "hosted_engine.configured"),
    ),
    "host_nic": (
        *("name", "mac.address", "mtu", "ip.address", "ip.netmask"),
        *("bonding.slaves.host_nic@id", "bonding.options.option.name"),
    ),
    "network_attachment": (
        *("network@id", "host_nic@id", "in_sync"),
        "ip_address_assignments.ip_address_assignment.ip.address",
        "ip_address_assignments.ip_address_assignment.ip.netmask",
        "ip_address_assignments.ip_address_assignment.assignment_method",
        "properties.property.name",
        "properties.property.value",
    ),
    "hook": ("name", "event_name"),
    "storage_domain": (
        *("name", "type", "master", "data_centers.data_center@id"),
        *(f"storage.{word}" for word in _STORAGE),
    ),
    "storage_connection": _STORAGE,
    "vm": ("name", "host@id", "placement_policy.affinity"),
    "disk": ("content_type",),
    "job": ("description", "external", "auto_cleared"),
    "step": ("description", "type", "external"),
    "event": ("code", "severity", "correlation_id", "origin", "custom_id", "host@id"),
    "action": (),
    "cluster_feature": ("name",),
    "system_option": ("name", "values.system_option_value.version"),
    "fault": (),
}

# Objects inside an object that are compared one by one, as if they were in a list.
NESTED = {
    "host": ("nics", "network_attachments", "hooks"),
    "cluster": ("networks",),
    "job": ("steps",),
}

# Elements that may be empty: an engine may show them, or leave them out.
EMPTY = ("", "0")

# Messages of faults that the product distinguishes, one kind each; the others are for
# people. The same patterns are used for both sides.
FAULT_WORDS = {
    "locked": r"Related operation .*in progress|FAILED_OBJECT_LOCKED",
    "passing": r"wait for operation to complete|[Tt]ry again later|try later",
    "not monitored": r"[Nn]on monitored",
    "no message": r"^\[\]$",
}

# Events whose codes the product looks for, or a person waits for with it: coming up,
# maintenance, migrations, mounts that failed, domains, and our own.
EVENTS = {13, 15, 16, 17, 602, 14001, 188, 996, 962, 963, 966, 967, 9801, 9802, 9803}
