# SPDX-License-Identifier: GPL-2.0-or-later
"""Validate the ``host:`` part beyond its form, and make a HostPolicy of it. Pure.

PCI addresses, GUIDs and P_Keys may be written in several ways; they are converted to
the form that the facts have. The functions that get the data of the file skip values of
the wrong type, which their form refuses.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Optional

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.devices import Guid
from ovirt_rdma.host.facts.ipoib import HEADER, MOST_DATAGRAM_MTU
from ovirt_rdma.host.facts.pkeys import DEFAULT_PARTITION, full_member, partition_of
from ovirt_rdma.host.policy.diagnostics import KeyPath, Mistake
from ovirt_rdma.host.policy.forms import Check
from ovirt_rdma.host.policy.model import (
    CONNECTED,
    DATAGRAM,
    ETHERNET,
    FOLLOW,
    INFINIBAND,
    ON,
    PARTITIONS_INTERVAL_S,
    HostPolicy,
    InterfaceRule,
    ModuleOption,
    VfRule,
    guest_numbers,
    is_glob,
)
from ovirt_rdma.host.policy.validate_modules import (
    folder_mistake,
    kernel_name,
    module_mistake,
    module_option_mistakes,
    modules_repeated,
    option_mistake,
)
from ovirt_rdma.host.policy.validate_nfs import MOST_COMPARED, each, glob_mistake

_PCI = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([01][0-9a-f])\.([0-7])", re.ASCII
)
_PCI_WITHOUT_FUNCTION = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]")
_GUID_NUMBER = re.compile(r"0x[0-9a-f]{1,16}|[0-9a-f]{16}")
_GUID_GROUPS = re.compile(r"([0-9a-f]{4}:){3}[0-9a-f]{4}|([0-9a-f]{2}:){7}[0-9a-f]{2}")
_IPOIB_ADDRESS = re.compile(r"([0-9a-f]{2}:){19}[0-9a-f]{2}")
_GID = re.compile(r"([0-9a-f]{4}:){7}[0-9a-f]{4}")
_PKEY = re.compile(r"0x[0-9a-f]{1,4}")
_PKEY_DIGITS = re.compile(r"[0-9a-f]{1,4}")
_PKEYS_ALLOWED = "allowed: 0x0001 to 0xffff, but not 0x8000"


class FormError(ValueError):
    """The text is not a PCI address, GUID or P_Key; ``sentence`` says why."""

    def __init__(self, id: str, text: str) -> None:
        super().__init__(text)
        self.sentence = Sentence(id, text)


def refusal(form: Callable[[str], object], text: str) -> Optional[Sentence]:
    """Return why ``form`` raises FormError for ``text``; None if it does not."""
    try:
        form(text)
    except FormError as error:
        return error.sentence
    return None


def pci_address(text: str) -> str:
    """Return a PCI address as ``0000:04:00.0``.

    ``04:00.0`` and ``00000000:04:00.0``, the form of some tools, are in domain 0000.
    Raises FormError.
    """
    match = _PCI.fullmatch(text.lower())
    if match:
        domain, bus, device, function = match.groups()
        return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}"
    sentence = f"{text!r} is not a PCI address; allowed: 0000:04:00.0 or 04:00.0"
    if _PCI_WITHOUT_FUNCTION.fullmatch(text.lower()):
        sentence = f"{text!r} lacks the function; write {text}.0 for the first one"
    raise FormError("pci-address-invalid", sentence)


def port_guid(text: str) -> str:
    """Return a GUID as ``0002:c903:00fb:1231``.

    It may have groups of four or two hex digits, be 16 hex digits, or a number with 0x.
    Raises FormError.
    """
    plain = text.lower()
    if _GUID_NUMBER.fullmatch(plain) or _GUID_GROUPS.fullmatch(plain):
        digits = plain.removeprefix("0x").replace(":", "").zfill(16)
        return Guid(digits).in_groups
    sentence = (
        f"{text!r} is not a GUID; allowed: 0002:c903:00fb:1231, 0x0002c90300fb1231"
    )
    # Both end with the GUID of the port (RFC 4391 section 9.1.1).
    for form, kind in ((_IPOIB_ADDRESS, "an IPoIB address"), (_GID, "a GID")):
        if form.fullmatch(plain):
            guid = Guid(plain.replace(":", "")[-16:]).in_groups
            sentence = f"{text!r} is {kind}; write the GUID at its end: {guid}"
    raise FormError("guid-invalid", sentence)


def pkey(text: str) -> str:
    """Return a P_Key as ``0x8001``.

    Only hex with 0x is accepted: 8001 could be decimal. Raises FormError.
    """
    plain = text.lower()
    if _PKEY.fullmatch(plain):
        value = f"0x{int(plain, 16):04x}"
        if partition_of(value) is None:
            sentence = f"{text} is not a partition; {_PKEYS_ALLOWED}"
            raise FormError("pkey-invalid", sentence)
        return value
    sentence = f"{text!r} is not a P_Key; {_PKEYS_ALLOWED}"
    if _PKEY_DIGITS.fullmatch(plain):
        sentence = f"{text!r} is not a P_Key; write 0x{plain} if it is hex"
    raise FormError("pkey-invalid", sentence)


def child_pkey(text: str) -> str:
    """Return the P_Key of a child that is created with ``text``: a full member's.

    The kernel sets bit 15 itself (drivers/infiniband/ulp/ipoib/ipoib_main.c,
    create_child). Raises FormError.
    """
    own = pkey(text)
    if partition_of(own) == DEFAULT_PARTITION:
        raise FormError(
            "pkey-default-partition",
            f"{text} is the default partition, which needs no child: the base netdev "
            "is in it",
        )
    return full_member(int(own, 16))


# Convert the keys of ``match`` that can be written in several ways.
NORMAL_FORM = {"pci": pci_address, "guid": port_guid, "pkey": pkey}


def interface_name(rule: Mapping[str, Any], number: int) -> str:
    """Return the admin's name of a rule, or ``interface N``, counted from 1."""
    return str(rule.get("name", f"interface {number}"))


def host_policy(host: Mapping[str, Any]) -> HostPolicy:
    """Return the policy of a ``host:`` part without mistakes."""
    return HostPolicy(
        interfaces=tuple(
            _interface(rule, number)
            for number, rule in enumerate(host.get("interfaces") or (), 1)
        ),
        modules=tuple(kernel_name(name) for name in host.get("modules") or ()),
        module_options=tuple(_options(host.get("module_options") or {})),
        partitions_interval=host.get("partitions_interval", PARTITIONS_INTERVAL_S),
        virtual_functions=tuple(
            _virtual_functions(rule, number)
            for number, rule in enumerate(host.get("virtual_functions") or (), 1)
        ),
        metrics_folder=host.get("metrics_folder"),
    )


def _without_match(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a rule, with those of its ``match`` in their normal form."""
    keys = {key: value for key, value in rule.items() if key != "match"}
    keys.update(
        {
            key: NORMAL_FORM[key](value) if key in NORMAL_FORM else value
            for key, value in rule["match"].items()
        }
    )
    return keys


def _virtual_functions(rule: Mapping[str, Any], number: int) -> VfRule:
    keys = {"name": f"virtual functions {number}", **_without_match(rule)}
    keys["pkeys"] = tuple(map(pkey, rule.get("pkeys") or ()))
    return VfRule(number=number, **keys)


def _interface(rule: Mapping[str, Any], number: int) -> InterfaceRule:
    keys = _without_match(rule)
    keys["name"] = interface_name(rule, number)
    keys["pkey_children"] = tuple(map(child_pkey, rule.get("pkey_children") or ()))
    return InterfaceRule(number=number, **keys)


def _options(modules: Mapping[str, Any]) -> Iterator[ModuleOption]:
    for module, options in modules.items():
        for name, value in (options or {}).items():
            yield ModuleOption(kernel_name(module), kernel_name(name), value)


_MATCH_EMPTY = Sentence(
    "match-empty",
    "names nothing; write at least one key, such as link_layer: infiniband for all "
    "InfiniBand ports",
)

_VF_MATCH_EMPTY = Sentence(
    "match-empty", "names nothing; write device, pci or guid of the physical function"
)

_INFINIBAND_ONLY = ("transport_mode", "port_mtu", "pkey_children", "partitions")


def host_mistakes(host: object) -> Iterator[Mistake]:
    """Yield every mistake in the ``host:`` part."""
    if not isinstance(host, dict):
        return
    rules = host.get("interfaces")
    numbers: dict[str, int] = {}
    for position, rule in enumerate(rules if isinstance(rules, list) else []):
        if not isinstance(rule, dict):
            continue
        path: KeyPath = ("host", "interfaces", position)
        name = interface_name(rule, position + 1)
        first = numbers.setdefault(name, position + 1)
        if first != position + 1:
            sentence = f"{name!r} is already the name of interface {first}"
            yield (*path, "name"), Sentence("name-repeated", sentence)
        match = rule.get("match")
        if "match" in rule and match in (None, {}):
            yield (*path, "match"), _MATCH_EMPTY
        elif isinstance(match, dict):
            yield from _layer_mistakes(rule, match, path)
        yield from _children_mistakes(rule, match, path)
        yield from _mode_mistakes(rule, path)
        yield from _port_type_mistakes(rule, match, path)
    yield from _vf_mistakes(host.get("virtual_functions"))
    yield from modules_repeated(host.get("modules"))
    yield from module_option_mistakes(host.get("module_options"))


def interfaces_never_winning(host: HostPolicy) -> Iterator[Mistake]:
    """Yield the interface rules whose netdevs an earlier rule certainly names all.

    Only the first MOST_COMPARED rules are compared.
    """
    rules = host.interfaces[:MOST_COMPARED]
    for position, later in enumerate(rules):
        earlier = next((r for r in rules[:position] if _names_all_of(r, later)), None)
        if earlier is not None:
            yield (
                ("host", "interfaces", position),
                Sentence(
                    "rule-never-wins",
                    f"{later.name!r} never wins: {earlier.name!r} is before it and "
                    "names all its netdevs; move it up, or remove it",
                ),
            )


def _device_mistake(device: str) -> Optional[Sentence]:
    port = re.fullmatch(r"([^/]+)/([0-9]+)", device)
    if port:
        sentence = f"{device!r} is a port; write device: {port[1]} and port: {port[2]}"
        return Sentence("device-is-port", sentence)
    if any(c == "/" or c.isspace() or not c.isprintable() for c in device):
        return Sentence(
            "device-invalid",
            f"{device!r} has a character that is not allowed in the name of an RDMA "
            "device",
        )
    if device.count("[") != device.count("]"):
        return Sentence("bracket-unmatched", f"{device!r} has an unmatched bracket")
    return glob_mistake(device)


def _layer_mistakes(
    rule: Mapping[str, Any], match: Mapping[str, Any], path: KeyPath
) -> Iterator[Mistake]:
    if match.get("link_layer") != ETHERNET:
        return
    places = [(*path, key) for key in _INFINIBAND_ONLY if rule.get(key)]
    places += [(*path, "match", key) for key in ("guid", "pkey") if match.get(key)]
    for place in places:
        yield (
            place,
            Sentence(
                "key-not-for-ethernet",
                "is for InfiniBand, but match names Ethernet ports; remove it",
            ),
        )


def _children_mistakes(
    rule: Mapping[str, Any], match: object, path: KeyPath
) -> Iterator[Mistake]:
    children = rule.get("pkey_children")
    if children and rule.get("partitions") == FOLLOW:
        yield (
            (*path, "partitions"),
            Sentence(
                "children-given-twice",
                f"{FOLLOW} creates the children of all partitions of the port; "
                "remove it, or pkey_children",
            ),
        )
    own = match.get("pkey") if isinstance(match, dict) else None
    if not isinstance(own, str) or refusal(pkey, own):
        own = None
    numbers: dict[str, int] = {}
    for position, text in enumerate(children if isinstance(children, list) else []):
        if not isinstance(text, str) or refusal(child_pkey, text):
            continue
        place = (*path, "pkey_children", position)
        first = numbers.setdefault(child_pkey(text), position + 1)
        if first != position + 1:
            yield (
                place,
                Sentence(
                    "pkey-repeated",
                    f"{text} is the same partition as pkey_children[{first}]",
                ),
            )
        elif own is not None and partition_of(pkey(own)) == partition_of(text):
            yield (
                place,
                Sentence(
                    "pkey-of-match",
                    f"{text} is the P_Key of match; a netdev cannot have a child with "
                    "its own P_Key",
                ),
            )


def _mode_mistakes(rule: Mapping[str, Any], path: KeyPath) -> Iterator[Mistake]:
    mode, mtu, port_mtu = (
        rule.get(key) for key in ("transport_mode", "mtu", "port_mtu")
    )
    if mode == CONNECTED and rule.get("tso") == ON:
        yield (
            (*path, "tso"),
            Sentence(
                "tso-in-connected-mode",
                "connected mode has no TSO; write auto, or transport_mode: datagram",
            ),
        )
    if mode != DATAGRAM or not isinstance(mtu, int) or isinstance(mtu, bool):
        return
    if mtu > MOST_DATAGRAM_MTU:
        yield (
            (*path, "mtu"),
            Sentence(
                "mtu-too-large",
                f"{mtu} is too large for datagram mode, whose limit is 4092 "
                f"({MOST_DATAGRAM_MTU} on Omni-Path); write auto, or transport_mode: "
                "connected",
            ),
        )
    elif isinstance(port_mtu, int) and mtu > port_mtu - HEADER:
        yield (
            (*path, "mtu"),
            Sentence(
                "mtu-too-large",
                f"{mtu} is too large for datagram mode with port_mtu: {port_mtu}, "
                f"whose limit is {port_mtu - HEADER}; write auto or less",
            ),
        )


def _port_type_mistakes(
    rule: Mapping[str, Any], match: object, path: KeyPath
) -> Iterator[Mistake]:
    """Yield the keys of ``match`` that would not name the port with its new type."""
    if not rule.get("port_type") or not isinstance(match, dict):
        return
    for key in ("link_layer", "guid", "pkey"):
        if match.get(key):
            yield (
                (*path, "match", key),
                Sentence(
                    "match-by-type",
                    "cannot be together with port_type, which changes it; write "
                    "device or pci, and port",
                ),
            )


def _vf_mistakes(rules: object) -> Iterator[Mistake]:
    numbers: dict[str, int] = {}
    for position, rule in enumerate(rules if isinstance(rules, list) else []):
        if not isinstance(rule, dict):
            continue
        path: KeyPath = ("host", "virtual_functions", position)
        name = str(rule.get("name", f"virtual functions {position + 1}"))
        first = numbers.setdefault(name, position + 1)
        if first != position + 1:
            sentence = f"{name!r} is already the name of virtual_functions[{first}]"
            yield (*path, "name"), Sentence("name-repeated", sentence)
        if "match" in rule and rule["match"] in (None, {}):
            yield (*path, "match"), _VF_MATCH_EMPTY


def _guests_mistake(text: str) -> Optional[Sentence]:
    if guest_numbers(text, 0) is None:
        sentence = f"{text!r} is not all, none, or numbers such as 0-11,14"
        return Sentence("guests-invalid", sentence)
    return None


def _names_all_of(earlier: InterfaceRule, later: InterfaceRule) -> bool:
    # Only IPoIB has P_Keys.
    layer = later.link_layer or (INFINIBAND if later.pkey else None)
    return (
        earlier.link_layer in {None, layer}
        and _names_all_devices_of(earlier.device, later.device)
        and earlier.pci in {None, later.pci}
        and earlier.port in {None, later.port}
        and earlier.guid in {None, later.guid}
        and (
            earlier.pkey is None
            or (
                later.pkey is not None
                and partition_of(earlier.pkey) == partition_of(later.pkey)
            )
        )
    )


def _names_all_devices_of(earlier: Optional[str], later: Optional[str]) -> bool:
    if earlier in {None, "*", later}:
        return True
    # Two different globs cannot be compared.
    return (
        earlier is not None
        and later is not None
        and not is_glob(later)
        and fnmatch.fnmatchcase(later, earlier)
    )


# The checks of texts, by the names in the table of fields.
HOST_CHECKS: dict[str, Check] = {
    **{
        key: each(functools.partial(refusal, form))
        for key, form in (*NORMAL_FORM.items(), ("child", child_pkey))
    },
    "device": each(_device_mistake),
    "module": each(module_mistake),
    "folder": each(folder_mistake),
    "option": each(option_mistake),
    "guests": each(_guests_mistake),
}
