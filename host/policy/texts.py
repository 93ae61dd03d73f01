# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert the texts of a policy to the form of the model.

Each function gets a text as it is written, which is not empty, and returns it in the
one form that the facts, the kernel or the tools have. For another text it returns None;
it raises Refused where it can say more than what is allowed. Pure.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import ENGINE_REFUSES
from ovirt_rdma.host.facts.devices import Guid
from ovirt_rdma.host.facts.infiniband import (
    DEFAULT_PARTITION,
    LONGEST_NAME,
    MEMBERSHIPS,
    PORT_WORDS,
    full_member,
    partition_of,
)
from ovirt_rdma.host.policy.forms import Refused, Text

ON, OFF = "on", "off"

# Patterns are texts, compiled when they are needed: vdsmd loads this module.

# InfiniBand

_PCI = r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([01][0-9a-f])(\.[0-7])?"
_GUID = (
    r"0x[0-9a-f]{1,16}|[0-9a-f]{16}"
    r"|([0-9a-f]{4}:){3}[0-9a-f]{4}|([0-9a-f]{2}:){7}[0-9a-f]{2}"
)
_IPOIB_ADDRESS = r"([0-9a-f]{2}:){19}[0-9a-f]{2}"
_GID = r"([0-9a-f]{4}:){7}[0-9a-f]{4}"


def pci_address(text: str) -> Optional[str]:
    """Return a PCI address as ``0000:04:00.0``.

    ``04:00.0`` and ``00000000:04:00.0``, the form of some tools, are in domain 0000.
    """
    match = re.fullmatch(_PCI, text.lower())
    if not match:
        return None
    domain, bus, device, function = match.groups()
    if not function:
        sentence = f"{text!r} lacks the function; write {text}.0 for the first one"
        raise Refused("value-invalid", sentence)
    return f"{int(domain or '0', 16):04x}:{bus}:{device}{function}"


def port_guid(text: str) -> Optional[str]:
    """Return a GUID as ``0002:c903:00fb:1231``; none is zero.

    It may have groups of four or two hex digits, be 16 hex digits, or a number with 0x.
    """
    plain = text.lower()
    if re.fullmatch(_GUID, plain):
        digits = plain.removeprefix("0x").replace(":", "").zfill(16)
        if not digits.strip("0"):
            raise Refused("guid-zero", f"{text} is zero, which identifies nothing")
        return Guid(digits).in_groups
    # Both end with the GUID of the port (RFC 4391 section 9.1.1).
    for form, kind in ((_IPOIB_ADDRESS, "an IPoIB address"), (_GID, "a GID")):
        if re.fullmatch(form, plain):
            guid = Guid(plain.replace(":", "")[-16:]).in_groups
            sentence = f"{text!r} is {kind}; write the GUID at its end: {guid}"
            raise Refused("value-invalid", sentence)
    return None


def identifier(text: str) -> Optional[str]:
    """Return an identifier of 64 bits, which is not zero, as 16 hex digits."""
    guid = port_guid(text)
    return guid and guid.replace(":", "")


def gid(text: str) -> Optional[str]:
    """Return the GID of a port as 32 hex digits."""
    plain = text.lower()
    match = re.fullmatch(r"(?:0x)?([0-9a-f]{32})", plain)
    try:
        number = int(match[1], 16) if match else int(ipaddress.IPv6Address(plain))
    except ValueError:
        return None
    of_port = number and number >> 120 != 0xFF and "%" not in plain
    return f"{number:032x}" if of_port else None


def pkey(text: str) -> Optional[str]:
    """Return a P_Key as ``0x8001``.

    Only hex with 0x is accepted: 8001 could be decimal.
    """
    match = re.fullmatch(r"(0x)?([0-9a-f]{1,4})", text.lower())
    if not match:
        return None
    if not match[1]:
        sentence = f"{text!r} is not a P_Key; write 0x{match[2]} if it is hex"
        raise Refused("value-invalid", sentence)
    value = f"0x{match[2].zfill(4)}"
    return None if partition_of(value) is None else value


def full_pkey(text: str) -> Optional[str]:
    """Return a P_Key as full members of the partition have it."""
    own = pkey(text)
    return own and full_member(int(own, 16))


def child_pkey(text: str) -> Optional[str]:
    """Return the P_Key of a child that is created with ``text``: a full member's.

    The kernel sets bit 15 itself (drivers/infiniband/ulp/ipoib/ipoib_main.c,
    create_child).
    """
    own = full_pkey(text)
    if partition_of(own) == DEFAULT_PARTITION:
        raise Refused(
            "pkey-default-partition",
            f"{text} is the default partition, which needs no child: the base netdev "
            "is in it",
        )
    return own


def device(text: str) -> Optional[str]:
    """Return the name of an RDMA device, or a glob."""
    port = re.fullmatch(r"([^/]+)/([0-9]+)", text)
    if port:
        sentence = f"{text!r} is a port; write device: {port[1]} and port: {port[2]}"
        raise Refused("device-is-port", sentence)
    if any(c == "/" or c.isspace() or not c.isprintable() for c in text):
        return None
    return _glob(text)


PCI = Text(
    "a PCI address such as 0000:04:00.0 or 04:00.0", normal=pci_address, written=True
)
GUID = Text(
    "a port's GUID such as 0002:c903:00fb:1231 or 0x0002c90300fb1231",
    normal=port_guid,
    written=True,
)
PKEY = Text("a P_Key from 0x0001 to 0xffff, but not 0x8000", normal=pkey, written=True)
CHILD_PKEY = Text(PKEY.allowed, normal=child_pkey, written=True)
DEVICE = Text("an RDMA device's name or a glob, such as mlx5_*", normal=device)

# Partitions and subnet managers

PARTITION_NAME = rf"[A-Za-z][A-Za-z0-9_.-]{{0,{LONGEST_NAME - 1}}}"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"


def partition_name(text: str) -> Optional[str]:
    """Return the name of a partition."""
    return text if re.fullmatch(PARTITION_NAME, text) else None


def host_name(text: str) -> Optional[str]:
    """Return the name of a host, which no word and no GUID of a member can be."""
    return text if re.fullmatch(_HOST, text) and not is_port(text) else None


def is_port(who: str) -> bool:
    """Whether a member of a partition is one of PORT_WORDS or a GUID."""
    return who in PORT_WORDS or bool(re.fullmatch(_GUID, who.lower()))


def member(text: str) -> Optional[str]:
    """Return ``WHO`` or ``WHO=MEMBERSHIP``; a GUID has the form of the facts."""
    who, equals, membership = text.partition("=")
    if equals and membership not in MEMBERSHIPS:
        return None
    if who not in PORT_WORDS and is_port(who):
        who = port_guid(who) or ""
    elif not is_port(who) and not re.fullmatch(_HOST, who):
        return None
    return f"{who}{equals}{membership}"


# Servers, exports and mount options

# A set of characters; a ] at its start belongs to it.
_SET = r"\[!?(\]?[^]]*)\]"


def glob_mistake(glob: str) -> Optional[Sentence]:
    """Return a sentence if a range such as ``[z-a]`` ends before it begins.

    fnmatch of Python 3.9 raises an error for it; later versions match nothing.
    """
    for characters in re.findall(_SET, glob):
        for first, last in re.findall(r"(?s)(.)-(.)", characters):
            if first > last:
                return Sentence(
                    "glob-range-invalid",
                    f"{glob!r} has a range that ends before it begins: {first}-{last}",
                )
    return None


def _glob(text: str) -> str:
    if text.count("[") != text.count("]"):
        raise Refused("bracket-unmatched", f"{text!r} has an unmatched bracket")
    mistake = glob_mistake(text)
    if mistake:
        raise Refused(mistake.id, mistake)
    return text


def server(text: str) -> Optional[str]:
    """Return a name, address, network or glob that can name servers of exports."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        pass
    else:
        if "%" not in text:
            return text
        address = text.partition("%")[0]
        raise Refused(
            "server-has-zone",
            f"{text!r} has a zone; write {address}, which matches every zone",
        )
    if ":/" in text:
        name, _, path = text.partition(":/")
        raise Refused(
            "server-is-export",
            f"{text!r} is a whole export; write server: {name} and path: /{path}",
        )
    inner = text[1:-1]
    if text.startswith("[") and text.endswith("]") and ":" in inner:
        sentence = f"{text!r} has brackets; write the address without them: {inner}"
        raise Refused("server-in-brackets", sentence)
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        # Digits and dots alone are no name.
        if re.fullmatch(r"[A-Za-z0-9._*?\[\]!-]+", text) and re.search("[^0-9.]", text):
            return _glob(text)
        return None
    raise Refused(
        "server-address-in-network",
        f"{text!r} is an address inside a network; write {network} for the network "
        f"or {text.partition('/')[0]} for the address",
    )


# Of future use and broadcast (RFC 1112 section 4, RFC 919 section 7).
_RESERVED_NETWORK = ipaddress.IPv4Network("240.0.0.0/4")
# "This network" (RFC 1122 section 3.2.1.3): no host has an address of it.
_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")


def path_address(text: str) -> Optional[str]:
    """Return the IPv4 address of a server, to which a connection can be moved.

    The kernel accepts anything there: a mount whose connection got a name or an IPv6
    address hangs (net/sunrpc/sysfs.c, rpc_sysfs_xprt_dstaddr_store).
    """
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return None
    multiple = address.is_multicast or address in _RESERVED_NETWORK
    if multiple or address.is_loopback or address in _THIS_NETWORK:
        return None
    # Python before 3.9.5 takes 010.0.0.1, which may be octal.
    return text if str(address) == text else None


def export_path(text: str) -> str:
    """Return a path or glob that can match the path of an export."""
    if text[0] not in "/*?[":
        sentence = f"{text!r} names no export: a path starts with /"
        raise Refused("path-not-absolute", sentence)
    mistake = glob_mistake(text)
    if mistake:
        raise Refused(mistake.id, mistake)
    normal = posixpath.normpath(text)
    normal = "/" + normal.lstrip("/") if text[0] == "/" else normal
    if normal != text:
        sentence = f"{text!r} names no export: exports are normalised; write {normal}"
        raise Refused("path-not-normalised", sentence)
    return text


_BY_DOMAIN = (
    "set it in the storage domain (NFS version, retransmissions, timeout), "
    "the engine sends it"
)
# Options that a policy must not have, and where each is set instead.
_OWNED_ELSEWHERE = {
    **dict.fromkeys(
        ("proto", "rdma", "rdma6", "tcp", "tcp6", "udp", "udp6"),
        "use the key transport",
    ),
    "port": "use the key port",
    "retry": "ovirt-rdma sets it for every export that a rule names",
    **dict.fromkeys((*ENGINE_REFUSES, "v2", "v3", "v4"), _BY_DOMAIN),
    **dict.fromkeys(("addr", "clientaddr", "mountproto"), "mount.nfs determines it"),
    **dict.fromkeys(
        ("vfs_type", "protocol_version"),
        "it is a field of the engine's storage connection",
    ),
    "bg": "vdsmd would see a mount that does not exist yet",
}


def options(text: str) -> str:
    """Return mount options with commas between them, perhaps none."""
    mistakes = list(_option_mistakes(text)) if text else []
    if mistakes:
        raise Refused(mistakes[0].id, *mistakes)
    return text


def _option_mistakes(text: str) -> Iterator[Sentence]:
    if text.count('"') % 2:
        yield Sentence("quote-unmatched", "has an unmatched quote")
    seen: set[str] = set()
    for item in text.split(","):
        name = item.partition("=")[0]
        if not item:
            yield Sentence(
                "option-empty",
                "has an empty item; write a,b with single commas between options",
            )
            continue
        if any(c.isspace() or not c.isprintable() for c in item):
            sentence = f"{item!r} has a blank in it; write a,b without blanks"
            yield Sentence("option-has-blank", sentence)
            continue
        if name in seen:
            sentence = f"{name} is given twice, and only the last one would be used"
            yield Sentence("option-repeated", sentence)
        seen.add(name)
        minor_version = re.fullmatch(r"(v[2-4])\.\d+", name)
        owner = _OWNED_ELSEWHERE.get(minor_version[1] if minor_version else name)
        if owner:
            sentence = f"{name} is not allowed in a policy; {owner}"
            yield Sentence("option-not-for-policy", sentence)


# Kernel modules and folders

# Aliases (net/sunrpc/xprtrdma/module.c): only the module itself is seen as loaded.
_MODULE_OF = {"xprtrdma": "rpcrdma", "svcrdma": "rpcrdma", "rpcrdma6": "rpcrdma"}


def module(text: str) -> Optional[str]:
    """Return the name of a module as the kernel has it: with ``_`` for ``-``, and not
    an alias.
    """
    file = re.fullmatch(r"(.+?)\.ko(\.\w+)?", text)
    if file:
        sentence = f"{text!r} is a file; write the module's name: {file[1]}"
        raise Refused("module-name-is-file", sentence)
    name = option_name(text)
    return name and _MODULE_OF.get(text, name)


def option_name(text: str) -> Optional[str]:
    """Return the name of a module's option as the kernel has it."""
    name = re.fullmatch(r"[A-Za-z0-9_-]+", text)
    return text.replace("-", "_") if name else None


def option_value(text: str) -> Optional[str]:
    """Return the value of a module's option.

    modprobe joins lines at a backslash. The kernel removes quotes and ends a value at a
    blank (lib/cmdline.c, next_arg). It refuses a longer text (kernel/params.c,
    param_set_charp).
    """
    allowed = re.fullmatch(r"[!-~]{1,1024}", text) and not re.search(r"[\"'\\]", text)
    return text if allowed else None


def folder(text: str) -> Optional[str]:
    """Return the absolute path of a folder."""
    normal = posixpath.normpath(text)
    absolute = text.isprintable() and re.match("/[^/]", normal)
    return text if absolute and text.rstrip("/") == normal else None


# Targets

ISCSI_PORT = 3260
# RFC 3720 section 3.2.6.3: naming authority and name; EUI-64; RFC 3980: NAA. RFC 3722
# has no / and no comma: open-iscsi makes a folder of the name, and lists with commas.
_IQN = (
    r"iqn\.[0-9]{4}-[0-9]{2}\.[a-z0-9.-]+(:[^\s/,\x00-\x1f\x7f]+)?|eui\.[0-9A-Fa-f]{16}"
    r"|naa\.([0-9A-Fa-f]{16}){1,2}"
)
_MOST_IQN = 223  # bytes, RFC 3720 section 3.2.6.1
# VDSM's _RESERVED_INTERFACES (lib/vdsm/storage/iscsiadm.py): it adds, overwrites and
# removes node records of these.
_RESERVED = ("default", "tcp", "iser")
# Not "iser", which open-iscsi ships: VDSM writes the node records of that one again,
# without password, and ends its sessions, if vdsm.conf has it in iscsi_default_ifaces
# (IscsiConnection._maybe_connect_iser, lib/vdsm/storage/storageServer.py).
INTERFACE = "ovirt-rdma"


def endpoint(text: str, port: Optional[int] = None) -> Optional[str]:
    """Return an address and port as ``10.0.0.1:5555`` or ``[fd00::1]:5555``.

    ``port`` is for a text that has none.
    """
    found = re.fullmatch(r"(?:\[(.*)\]|([^:]*))(?::([0-9]{1,5}))?", text)
    try:
        address = ipaddress.ip_address((found[1] or found[2]) if found else "")
    except ValueError:
        return None
    bracketed = found is not None and found[1] is not None
    number = int(found[3]) if found and found[3] else port or 0
    one = not (address.is_unspecified or address.is_multicast or "%" in text)
    if not one or bracketed != (address.version == 6) or not 1 <= number <= 65535:
        return None
    return f"[{address}]:{number}" if bracketed else f"{address}:{number}"


def iqn(text: str) -> Optional[str]:
    """Return the name of an iSCSI target."""
    allowed = re.fullmatch(_IQN, text) and len(text.encode()) <= _MOST_IQN
    return text if allowed else None


def interface_record(text: str) -> Optional[str]:
    """Return the name of a record of open-iscsi that VDSM leaves alone."""
    if text in _RESERVED:
        sentence = f"{text!r} is a record that VDSM uses; write {INTERFACE}"
        raise Refused("record-of-vdsm", sentence)
    return text if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", text) else None
