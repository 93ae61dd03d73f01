# SPDX-License-Identifier: GPL-2.0-or-later
"""Represent the ``block:`` part of the policy: its data, and the table of its keys.

Ranges are those of the kernel: srp_parse_options() in drivers/infiniband/ulp/srp/
ib_srp.c and srp_tmo_valid() in drivers/scsi/scsi_transport_srp.c (Linux 6.1). Where the
kernel only has a lower limit, the upper one is that of the field it sets: an int, or
the short ``cmd_per_lun`` of include/scsi/scsi_host.h. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Union

from ovirt_rdma.host.policy.forms import Field, Keys, ListOf, Number, Text

OFF = "off"
Timeout = Union[int, str, None]
"""Seconds or OFF; None for the kernel's own value."""

# Of the module ib_srp, without options (ib_srp.c).
FAST_IO_FAIL_S, DEV_LOSS_S, RECONNECT_S = 15, 600, 10
QUEUE_SIZE = 62
# SCSI_DEVICE_BLOCK_MAX_TIMEOUT of include/scsi/scsi_device.h.
MOST_BLOCKED_S = 600

LOGIN_TIMEOUT_S = 20
# Not "iser", which open-iscsi ships: VDSM writes the node records of that one again,
# without password, and ends its sessions, if vdsm.conf has it in iscsi_default_ifaces
# (IscsiConnection._maybe_connect_iser, lib/vdsm/storage/storageServer.py).
INTERFACE = "ovirt-rdma"
ISCSI_PORT = 3260

_INT, _SHORT = 2**31 - 1, 2**15 - 1


@dataclass(frozen=True)
class SrpTarget:
    """An SRP target, reached by the InfiniBand or by the RDMA connection manager.

    ``number`` counts from 1; ``name`` is the admin's or ``srp N``. ``id_ext``,
    ``ioc_guid``, ``service_id`` and ``initiator_ext`` are 16 hex digits, ``dgid`` is
    32, ``pkey`` is ``0x8001``, ``dest`` is ``10.0.0.1:5555`` or ``[fd00::1]:5555``:
    either ``dest`` is set, or ``dgid``, ``pkey`` and ``service_id`` are. ``device`` (a
    name or a glob) and ``port`` name the local ports that log in. ``options`` are names
    and values of the kernel's login options, sorted.
    """

    number: int
    name: str
    id_ext: str
    ioc_guid: str
    dgid: Optional[str] = None
    pkey: Optional[str] = None
    service_id: Optional[str] = None
    dest: Optional[str] = None
    device: Optional[str] = None
    port: Optional[int] = None
    initiator_ext: Optional[str] = None
    options: tuple[tuple[str, int], ...] = ()
    fast_io_fail_tmo: Timeout = None
    dev_loss_tmo: Timeout = None
    reconnect_delay: Timeout = None

    @property
    def title(self) -> str:
        """The target in sentences: ``srp 3`` or ``srp 'array1'``."""
        unnamed = f"srp {self.number}"
        return unnamed if self.name == unnamed else f"srp {self.name!r}"

    @property
    def uses_rdma_cm(self) -> bool:
        """Whether an IP address leads to it, so that RoCE and iWARP do too."""
        return self.dest is not None


@dataclass(frozen=True)
class IserTarget:
    """An iSCSI target over RDMA. ``portal`` is ``10.0.0.1:3260``; ``interface`` is a
    record of ``iscsiadm -m iface`` whose transport is iser.
    """

    number: int
    name: str
    portal: str
    iqn: str
    interface: str = INTERFACE

    @property
    def title(self) -> str:
        """The target in sentences: ``iser 3`` or ``iser 'array2'``."""
        unnamed = f"iser {self.number}"
        return unnamed if self.name == unnamed else f"iser {self.name!r}"


@dataclass(frozen=True)
class BlockPolicy:
    """The ``block:`` part; an empty one logs in nowhere.

    ``login_timeout`` is in seconds, ``rescan_interval`` too; None for no rescan.
    """

    srp: tuple[SrpTarget, ...] = ()
    iser: tuple[IserTarget, ...] = ()
    login_timeout: int = LOGIN_TIMEOUT_S
    rescan_interval: Optional[int] = None


def _hex(meaning: str, name: str, if_left_out: str = "", **keys: Any) -> Field:
    form = Text("16 hex digits such as 0002c90300fb1230", written=True, check="guid")
    return Field(name, form, meaning, if_left_out, **keys)


OPTIONS = Keys(
    Field("queue_size", Number(2, _SHORT), "commands to a target at once", "62"),
    Field("max_cmd_per_lun", Number(1, _SHORT), "of these to one LUN", "queue_size"),
    Field(
        "target_can_queue",
        Number(1, _INT),
        "commands of all LUNs together",
        "no limit",
    ),
    Field("max_sect", Number(1, _INT), "sectors of 512 bytes a command", "1024"),
    Field(
        "cmd_sg_entries",
        Number(1, 255),
        "buffer descriptors in a command itself",
        "that of ib_srp",
    ),
    Field(
        "allow_ext_sg",
        Number(choices=(0, 1)),
        "1: a command may have more of them outside of itself",
        "that of ib_srp",
    ),
    Field(
        "sg_tablesize",
        Number(1, 2048),
        "buffers a command; more than cmd_sg_entries needs allow_ext_sg",
        "that of ib_srp",
    ),
    Field("tl_retry_count", Number(2, 7), "retries of the transport", "7"),
    Field("comp_vector", Number(0, _INT), "the first completion vector", "0"),
    Field("ch_count", Number(1, _INT), "RDMA channels", "that of ib_srp"),
    Field(
        "max_it_iu_size",
        Number(0, _INT),
        "bytes of a request; a limit of the target",
        "that of ib_srp",
    ),
)

SRP = Keys(
    Field(
        "name", Text("any text"), "different for each target", "`srp N`, counted from 1"
    ),
    _hex("the first half of the target's identifier", "id_ext", required=True),
    _hex("its second half, the GUID of its controller", "ioc_guid", required=True),
    Field(
        "dest",
        Text("an address and a port such as 10.0.0.1:5555", check="endpoint"),
        "RDMA CM: where the target listens, on InfiniBand, RoCE or iWARP",
        "the next three must be there",
    ),
    Field(
        "dgid",
        Text("a GID such as fe80::2:c903:fb:1231", written=True, check="gid"),
        "InfiniBand CM: the GID of the target's port",
    ),
    Field(
        "pkey",
        Text("a P_Key such as 0x8001", written=True, check="pkey"),
        "InfiniBand CM: the partition",
    ),
    _hex("InfiniBand CM: the target's service", "service_id"),
    Field(
        "device",
        Text("an RDMA device's name or a glob, such as mlx5_*", check="device"),
        "the local ports that log in",
        "each that reaches the target",
    ),
    Field("port", Number(1, 65535), "the same", "each that reaches the target"),
    _hex(
        "this host's identifier; another one for a second path through the same port",
        "initiator_ext",
        "zero",
    ),
    Field("options", OPTIONS.or_null(), "of the login", "the kernel's"),
    Field(
        "fast_io_fail_tmo",
        Number(0, MOST_BLOCKED_S, word=OFF),
        "seconds after a lost connection until commands fail, so that multipath uses "
        "another path",
        f"{FAST_IO_FAIL_S}",
    ),
    Field(
        "dev_loss_tmo",
        Number(1, _INT, word=OFF),
        "seconds after a lost connection until the LUNs are removed",
        f"{DEV_LOSS_S}",
    ),
    Field(
        "reconnect_delay",
        Number(1, _INT, word=OFF),
        "seconds between two attempts to connect again",
        f"{RECONNECT_S}",
    ),
)

ISER_TARGET = Keys(
    Field(
        "name",
        Text("any text"),
        "different for each target",
        "`iser N`, counted from 1",
    ),
    Field(
        "portal",
        Text("an address such as 10.0.0.1 or 10.0.0.1:3260", check="portal"),
        "where the target listens; port 3260 if there is none",
        required=True,
    ),
    Field(
        "iqn",
        Text("a name such as iqn.2003-01.org.example:data", check="iqn"),
        "the target",
        required=True,
    ),
    Field(
        "interface",
        Text("the name of an interface record", check="record"),
        "of open-iscsi, with the transport iser",
        INTERFACE,
    ),
)

BLOCK = Keys(
    Field("srp", ListOf(SRP), "SRP targets", "none"),
    Field("iser", ListOf(ISER_TARGET), "iSER targets", "none"),
    Field(
        "login_timeout",
        Number(1, 120),
        "seconds for the login to one target",
        default=LOGIN_TIMEOUT_S,
    ),
    Field(
        "rescan_interval",
        Number(60, 86400),
        "seconds between two rescans for new LUNs and sizes",
        "no rescan",
    ),
)
