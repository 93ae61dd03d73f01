# SPDX-License-Identifier: GPL-2.0-or-later
"""Validate the ``block:`` part beyond its form, and make a BlockPolicy of it. Pure.

The kernel's own checks of a login come too late, and are not complete: with a missing
ioc_guid, srp_parse_options() (ib_srp.c, Linux 6.1) returns 0 and logs in with zeros. So
nothing reaches the kernel that is not valid here.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.block_fields import (
    DEV_LOSS_S,
    FAST_IO_FAIL_S,
    INTERFACE,
    ISCSI_PORT,
    LOGIN_TIMEOUT_S,
    MOST_BLOCKED_S,
    OFF,
    QUEUE_SIZE,
    RECONNECT_S,
    BlockPolicy,
    IserTarget,
    SrpTarget,
    Timeout,
)
from ovirt_rdma.host.policy.diagnostics import KeyPath, Mistake
from ovirt_rdma.host.policy.forms import Check
from ovirt_rdma.host.policy.validate_host import FormError, pkey, port_guid, refusal
from ovirt_rdma.host.policy.validate_nfs import each

_IB_CM = ("dgid", "pkey", "service_id")
_HEX_KEYS = ("id_ext", "ioc_guid", "service_id", "initiator_ext")
# RFC 3720 section 3.2.6.3: naming authority and name; EUI-64; RFC 3980: NAA. RFC 3722
# has no / and no comma: open-iscsi makes a folder of the name, and lists with commas.
_IQN = re.compile(
    r"iqn\.[0-9]{4}-[0-9]{2}\.[a-z0-9.-]+(:[^\s/,\x00-\x1f\x7f]+)?|eui\.[0-9A-Fa-f]{16}"
    r"|naa\.([0-9A-Fa-f]{16}){1,2}"
)
_MOST_IQN = 223  # bytes, RFC 3720 section 3.2.6.1
_RECORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*", re.ASCII)
_GID_DIGITS = re.compile(r"(?:0x)?([0-9a-f]{32})")
# VDSM's _RESERVED_INTERFACES (lib/vdsm/storage/iscsiadm.py): it adds, overwrites and
# removes node records of these.
_RESERVED = ("default", "tcp", "iser")


def hex_digits(text: str) -> str:
    """Return a 64-bit identifier as 16 hex digits. Raises FormError."""
    return port_guid(text).replace(":", "")


def gid(text: str) -> str:
    """Return the GID of a port as 32 hex digits. Raises FormError."""
    plain = text.lower()
    match = _GID_DIGITS.fullmatch(plain)
    try:
        number = int(match[1], 16) if match else int(ipaddress.IPv6Address(plain))
    except ValueError:
        number = 0
    if number == 0 or number >> 120 == 0xFF or "%" in plain:
        raise FormError(
            "gid-invalid",
            f"{text!r} is not the GID of a port; allowed: fe80::2:c903:fb:1231 or 32 "
            "hex digits",
        )
    return f"{number:032x}"


def endpoint(text: str, port: Optional[int] = None) -> str:
    """Return an address and port as ``10.0.0.1:5555`` or ``[fd00::1]:5555``.

    ``port`` is for a text that has none. Raises FormError.
    """
    host, colon, digits = text.rpartition(":")
    if text.endswith("]") or (not colon and port is not None):
        host, digits = text, ""
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    number = int(digits) if digits.isascii() and digits.isdecimal() else 0
    if not digits and port is not None:
        number = port
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        address = None
    bracketed = plain != host
    if address is None or "%" in plain or bracketed != (address.version == 6):
        raise FormError(
            "address-invalid",
            f"{text!r} is not an IP address and port; allowed: 10.0.0.1:5555, "
            "[fd00::1]:5555; names and zones are not possible",
        )
    if address.is_unspecified or address.is_multicast:
        raise FormError("address-invalid", f"{text!r} is not the address of one target")
    if not 1 <= number <= 65535:
        raise FormError(
            "port-invalid", f"{text!r} has no port from 1 to 65535 after the address"
        )
    return f"[{address}]:{number}" if bracketed else f"{address}:{number}"


def portal(text: str) -> str:
    """Return an iSCSI portal with its port. Raises FormError."""
    return endpoint(text, ISCSI_PORT)


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


def block_policy(block: Mapping[str, Any]) -> BlockPolicy:
    """Return the policy of a ``block:`` part without mistakes."""
    return BlockPolicy(
        tuple(_srp(one, n) for n, one in enumerate(block.get("srp") or (), 1)),
        tuple(_iser(one, n) for n, one in enumerate(block.get("iser") or (), 1)),
        block.get("login_timeout", LOGIN_TIMEOUT_S),
        block.get("rescan_interval"),
    )


def _name(keys: Mapping[str, Any], kind: str, number: int) -> str:
    return str(keys.get("name", f"{kind} {number}"))


def _srp(keys: Mapping[str, Any], number: int) -> SrpTarget:
    own = {**keys, "name": _name(keys, "srp", number)}
    own.update({key: hex_digits(keys[key]) for key in _HEX_KEYS if key in keys})
    for key, normal in (("dgid", gid), ("pkey", pkey), ("dest", endpoint)):
        if key in keys:
            own[key] = normal(keys[key])
    own["options"] = tuple(sorted((keys.get("options") or {}).items()))
    return SrpTarget(number=number, **own)


def _iser(keys: Mapping[str, Any], number: int) -> IserTarget:
    own = {**keys, "name": _name(keys, "iser", number)}
    return IserTarget(number=number, **{**own, "portal": portal(keys["portal"])})


def block_mistakes(block: object) -> Iterator[Mistake]:
    """Yield every mistake in the ``block:`` part that is not one of a single text.

    Values of the wrong type, which their form refuses, are skipped.
    """
    if not isinstance(block, dict):
        return
    for kind, mistakes in (("srp", _srp_mistakes), ("iser", _no_mistakes)):
        targets = block.get(kind)
        named: dict[str, int] = {}
        seen: dict[object, int] = {}
        for position, keys in enumerate(targets if isinstance(targets, list) else []):
            if not isinstance(keys, dict):
                continue
            path: KeyPath = ("block", kind, position)
            number = position + 1
            name = _name(keys, kind, number)
            if named.setdefault(name, number) != number:
                sentence = f"{name!r} is already the name of {kind} {named[name]}"
                yield (*path, "name"), Sentence("name-repeated", sentence)
            yield from mistakes(keys, path)
            same = _identity(kind, keys, number)
            if same is not None and seen.setdefault(same, number) != number:
                sentence = f"is the same target as {kind} {seen[same]}; remove one"
                yield path, Sentence("target-repeated", sentence)


def _identity(kind: str, keys: Mapping[str, Any], number: int) -> object:
    """Return what two entries for one login share; None if ``keys`` has mistakes."""
    try:
        if kind == "iser":
            one = _iser(keys, number)
            return one.portal, one.iqn, one.interface
        two = _srp(keys, number)
        to = (two.id_ext, two.ioc_guid, two.initiator_ext, two.dest, two.dgid)
        return *to, two.device, two.port
    except (ValueError, TypeError, AttributeError, KeyError):
        return None


def _no_mistakes(keys: Mapping[str, Any], path: KeyPath) -> Iterator[Mistake]:
    return iter(())


def _srp_mistakes(keys: Mapping[str, Any], path: KeyPath) -> Iterator[Mistake]:
    yield from _form_mistakes(keys, path)
    for key in ("id_ext", "ioc_guid", "service_id"):
        if isinstance(keys.get(key), str) and _is_zero(keys[key]):
            yield (
                (*path, key),
                Sentence("identifier-zero", "is zero, which no target has"),
            )
    options = keys.get("options")
    if isinstance(options, dict):
        yield from _option_mistakes(options, (*path, "options"))
    values = [
        keys.get(k) for k in ("fast_io_fail_tmo", "dev_loss_tmo", "reconnect_delay")
    ]
    if all(_is_timeout(value) for value in values):
        problem = timeouts_problem(*values)
        if problem:
            sentence = f"{problem}; the kernel refuses that"
            yield path, Sentence("timeouts-exclude-each-other", sentence)


def _form_mistakes(keys: Mapping[str, Any], path: KeyPath) -> Iterator[Mistake]:
    given = [key for key in _IB_CM if key in keys]
    if "dest" in keys and given:
        sentence = (
            f"is for RDMA CM, and {', '.join(given)} for the InfiniBand CM; remove one "
            "or the other"
        )
        yield (*path, "dest"), Sentence("target-form-mixed", sentence)
    elif "dest" not in keys and len(given) < len(_IB_CM):
        missing = ", ".join(key for key in _IB_CM if key not in keys)
        sentence = (
            f"has no way to the target: write dest, or add {missing}, which "
            "ibsrpdm -c shows"
        )
        yield path, Sentence("target-form-missing", sentence)


def _option_mistakes(options: Mapping[str, Any], path: KeyPath) -> Iterator[Mistake]:
    numbers = {key: value for key, value in options.items() if type(value) is int}
    queue = numbers.get("queue_size", QUEUE_SIZE)
    if numbers.get("max_cmd_per_lun", 0) > queue:
        sentence = f"is more than queue_size, which is {queue}"
        yield (*path, "max_cmd_per_lun"), Sentence("option-too-large", sentence)
    entries = numbers.get("cmd_sg_entries")
    tables = numbers.get("sg_tablesize", 0)
    if entries is not None and tables > entries and not numbers.get("allow_ext_sg"):
        sentence = (
            f"is more than cmd_sg_entries, which is {entries}, and that needs "
            "allow_ext_sg: 1"
        )
        yield (*path, "sg_tablesize"), Sentence("option-too-large", sentence)


def _is_zero(text: str) -> bool:
    return not text.lower().removeprefix("0x").replace(":", "").strip("0")


def _is_timeout(value: object) -> bool:
    return value is None or value == OFF or type(value) is int


def _iqn_mistake(iqn: str) -> Optional[Sentence]:
    if _IQN.fullmatch(iqn) and len(iqn.encode()) <= _MOST_IQN:
        return None
    return Sentence(
        "iqn-invalid",
        f"{iqn!r} is not an iSCSI name; allowed: iqn.2003-01.org.example:data, eui. or "
        "naa. and hex digits",
    )


def _record_mistake(name: str) -> Optional[Sentence]:
    if name in _RESERVED:
        sentence = f"{name!r} is a record that VDSM uses; write {INTERFACE}"
        return Sentence("record-of-vdsm", sentence)
    if _RECORD.fullmatch(name):
        return None
    return Sentence(
        "record-invalid",
        f"{name!r} has a character that is not allowed in the name of an interface "
        "record",
    )


# The checks of texts, by the names in the table of keys; guid, pkey and device are in
# validate_host.
BLOCK_CHECKS: dict[str, Check] = {
    **{
        key: each(functools.partial(refusal, form))
        for key, form in (("gid", gid), ("endpoint", endpoint), ("portal", portal))
    },
    "iqn": each(_iqn_mistake),
    "record": each(_record_mistake),
}
