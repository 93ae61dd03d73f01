# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the ``block:`` part of the policy: its keys and its records.

Ranges are those of the kernel: srp_parse_options() in drivers/infiniband/ulp/srp/
ib_srp.c and srp_tmo_valid() in drivers/scsi/scsi_transport_srp.c (Linux 6.1). Where the
kernel only has a lower limit, the upper one is that of the field it sets: an int, or
the short ``cmd_per_lun`` of include/scsi/scsi_host.h.

The kernel's own checks of a login come too late, and are not complete: with a missing
ioc_guid, srp_parse_options() returns 0 and logs in with zeros. So nothing reaches the
kernel that is not valid here. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Optional, Union

from ovirt_rdma.host.facts.infiniband import TIMEOUTS
from ovirt_rdma.host.policy import texts
from ovirt_rdma.host.policy.forms import (
    NAME,
    Given,
    Key,
    Keys,
    ListOf,
    Number,
    Numbered,
    Text,
    key,
    repeated,
)
from ovirt_rdma.host.policy.texts import OFF

Timeout = Union[int, str, None]
"""Seconds or OFF; None for the kernel's own value."""

# Of the module ib_srp, without options (ib_srp.c).
FAST_IO_FAIL_S, DEV_LOSS_S, RECONNECT_S = 15, 600, 10
QUEUE_SIZE = 62
# SCSI_DEVICE_BLOCK_MAX_TIMEOUT of include/scsi/scsi_device.h.
MOST_BLOCKED_S = 600

LOGIN_TIMEOUT_S = 20

_INT, _SHORT = 2**31 - 1, 2**15 - 1


def _check_options(options: Given) -> None:
    queue = options.get("queue_size", QUEUE_SIZE)
    if options.get("max_cmd_per_lun", 0) > queue:
        sentence = f"is more than queue_size, which is {queue}"
        options.refuse("max_cmd_per_lun", "option-too-large", sentence)
    tables = options.get("sg_tablesize", 0)
    entries = options.get("cmd_sg_entries", tables)
    if tables > entries and not options.get("allow_ext_sg"):
        sentence = (
            f"is more than cmd_sg_entries, which is {entries}, and that needs "
            "allow_ext_sg: 1"
        )
        options.refuse("sg_tablesize", "option-too-large", sentence)


_NUMBERS = {
    "queue_size": Number(2, _SHORT),
    "max_cmd_per_lun": Number(1, _SHORT),
    "target_can_queue": Number(1, _INT),
    "max_sect": Number(1, _INT),
    "cmd_sg_entries": Number(1, 255),
    "allow_ext_sg": Number(choices=(0, 1)),
    "sg_tablesize": Number(1, 2048),
    "tl_retry_count": Number(2, 7),
    "comp_vector": Number(0, _INT),
    "ch_count": Number(1, _INT),
    "max_it_iu_size": Number(0, _INT),
}
OPTIONS = Keys(
    rows={name: Key(number) for name, number in _NUMBERS.items()},
    make=lambda **options: tuple(sorted(options.items())),
    check=_check_options,
)


def timeouts_problem(
    fast_io_fail: Timeout, dev_loss: Timeout, reconnect: Timeout
) -> Optional[str]:
    """Return, as a clause, why the kernel refuses these three together; None if it
    accepts them. A value that is None is the kernel's default.

    The conditions are those of srp_tmo_valid() in scsi_transport_srp.c.
    """
    fast = _seconds(fast_io_fail, FAST_IO_FAIL_S)
    loss = _seconds(dev_loss, DEV_LOSS_S)
    delay = _seconds(reconnect, RECONNECT_S)
    if fast < 0 and loss < 0 and delay < 0:
        return "all three timeouts are off, so that a lost connection blocks forever"
    if fast < 0 and loss > MOST_BLOCKED_S:
        return (
            f"dev_loss_tmo is {loss} s, and without fast_io_fail_tmo it may be "
            f"{MOST_BLOCKED_S} at most"
        )
    if 0 <= loss <= fast:
        return f"fast_io_fail_tmo is {fast} s, which is not less than dev_loss_tmo"
    return None


def _seconds(value: Timeout, default: int) -> int:
    if value is None:
        return default
    return -1 if isinstance(value, str) else value


_IDENTIFIER = Text(
    "16 hex digits such as 0002c90300fb1230", normal=texts.identifier, written=True
)


@dataclass(frozen=True)
class SrpTarget(Numbered):
    """An SRP target, reached by the InfiniBand or by the RDMA connection manager.

    ``id_ext``, ``ioc_guid``, ``service_id`` and ``initiator_ext`` are 16 hex digits,
    ``dgid`` is 32, ``pkey`` is ``0x8001``, ``dest`` is ``10.0.0.1:5555`` or
    ``[fd00::1]:5555``: either ``dest`` is set, or ``dgid``, ``pkey`` and ``service_id``
    are. ``device`` (a name or a glob) and ``port`` name the local ports that log in.
    ``options`` are names and values of the kernel's login options, sorted.
    """

    noun = "srp"

    number: int
    name: str = key(NAME, required=False)
    id_ext: str = key(_IDENTIFIER)
    ioc_guid: str = key(_IDENTIFIER)
    dgid: Optional[str] = key(
        Text(
            "a GID such as fe80::2:c903:fb:1231 or 32 hex digits",
            normal=texts.gid,
            written=True,
        ),
        None,
    )
    pkey: Optional[str] = key(texts.PKEY, None)
    service_id: Optional[str] = key(_IDENTIFIER, None)
    dest: Optional[str] = key(
        Text(
            "an IP address and a port such as 10.0.0.1:5555 or [fd00::1]:5555",
            normal=texts.endpoint,
        ),
        None,
    )
    device: Optional[str] = key(texts.DEVICE, None)
    port: Optional[int] = key(Number(1, 65535), None)
    initiator_ext: Optional[str] = key(_IDENTIFIER, None)
    options: tuple[tuple[str, int], ...] = key(OPTIONS, ())
    fast_io_fail_tmo: Timeout = key(Number(0, MOST_BLOCKED_S, word=OFF), None)
    dev_loss_tmo: Timeout = key(Number(1, _INT, word=OFF), None)
    reconnect_delay: Timeout = key(Number(1, _INT, word=OFF), None)


_IB_CM = ("dgid", "pkey", "service_id")


def _check_target(target: Given) -> None:
    given = [one for one in _IB_CM if one in target.written]
    if "dest" in target.written and given:
        target.refuse(
            "dest",
            "target-form-mixed",
            f"is for RDMA CM, and {', '.join(given)} for the InfiniBand CM; remove one "
            "or the other",
        )
    elif "dest" not in target.written and len(given) < len(_IB_CM):
        missing = ", ".join(one for one in _IB_CM if one not in given)
        target.refuse(
            (),
            "target-form-missing",
            f"has no way to the target: write dest, or add {missing}, which ibsrpdm -c "
            "shows",
        )
    if target.keys() >= target.written & {*TIMEOUTS}:
        problem = timeouts_problem(*map(target.get, TIMEOUTS))
        if problem:
            sentence = f"{problem}; the kernel refuses that"
            target.refuse((), "timeouts-exclude-each-other", sentence)


SRP = Keys(SrpTarget, check=_check_target)


@dataclass(frozen=True)
class IserTarget(Numbered):
    """An iSCSI target over RDMA. ``portal`` is ``10.0.0.1:3260``; ``interface`` is a
    record of ``iscsiadm -m iface`` whose transport is iser.
    """

    noun = "iser"

    number: int
    name: str = key(NAME, required=False)
    portal: str = key(
        Text(
            "an IP address such as 10.0.0.1 or 10.0.0.1:3260",
            normal=partial(texts.endpoint, port=texts.ISCSI_PORT),
        )
    )
    iqn: str = key(
        Text(
            "iqn.2003-01.org.example:data, or eui. or naa. and hex digits",
            normal=texts.iqn,
        )
    )
    interface: str = key(
        Text("the name of an interface record", normal=texts.interface_record),
        texts.INTERFACE,
    )


ISER_TARGET = Keys(IserTarget)


@dataclass(frozen=True)
class BlockPolicy:
    """The ``block:`` part; an empty one logs in nowhere.

    ``login_timeout`` is in seconds, ``rescan_interval`` too; None for no rescan.
    """

    srp: tuple[SrpTarget, ...] = key(ListOf(SRP), ())
    iser: tuple[IserTarget, ...] = key(ListOf(ISER_TARGET), ())
    login_timeout: int = key(Number(1, 120), LOGIN_TIMEOUT_S)
    rescan_interval: Optional[int] = key(Number(60, 86400), None)

    @property
    def targets(self) -> list[Union[SrpTarget, IserTarget]]:
        """All targets, those of SRP first."""
        return [*self.srp, *self.iser]


# What two entries for one login share.
_LOGIN = {
    "srp": ("id_ext", "ioc_guid", "initiator_ext", "dest", "dgid", "device", "port"),
    "iser": ("portal", "iqn", "interface"),
}


def _check_logins(block: Given) -> None:
    for kind, shared in _LOGIN.items():
        targets = block.get(kind, ())
        valid = [
            {"interface": texts.INTERFACE, **one}
            if one is not None and one.written == one.keys()
            else None
            for one in targets
        ]
        logins = (one and tuple(map(one.get, shared)) for one in valid)
        for later, first in repeated(enumerate(logins)):
            sentence = f"is the same target as {kind} {first + 1}; remove one"
            targets[later].refuse((), "target-repeated", sentence)


BLOCK = Keys(BlockPolicy, check=_check_logins)
