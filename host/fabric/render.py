# SPDX-License-Identifier: GPL-2.0-or-later
"""Write partitions.conf. Pure.

One member a line, so that no line reaches opensm's limit; each member with its
membership, so that none depends on a default; each group with a flag, because opensm
reads flags that are not there from what an earlier line has left in its buffer
(osm_prtn_config.c, mgroup_create).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ovirt_rdma.host.fabric.model import Definition, Group, GroupFlags
from ovirt_rdma.host.facts.ib_codes import MTUS, RATES


def render(definitions: Iterable[Definition], head: Iterable[str] = ()) -> str:
    """Return the text of the file, with the comment lines ``head`` at its top.

    :func:`.grammar.parse` reads the same definitions from it.
    """
    lines = [f"# {line}".rstrip() for line in head]
    for definition in definitions:
        lines += ["", *_lines(definition)]
    return "\n".join(lines).lstrip("\n") + "\n"


def _lines(definition: Definition) -> Iterator[str]:
    flags = definition.flags
    meaning = [
        f"MTU {MTUS[flags.used_mtu]}",
        f"rate {RATES[flags.used_rate] / 1000:g} Gb/s",
    ]
    if definition.ipoib:
        yield f"# IPoIB broadcast group: {', '.join(meaning)}"
    words = [f"{definition.name}=0x{definition.pkey:04x}"]
    if definition.indx0:
        words.append("indx0")
    if definition.ipoib:
        words.append("ipoib")
    yield f"{','.join((*words, *_flags(flags)))} :"
    words = [
        f"mgid={','.join((group.mgid, *_group_flags(group, flags)))}"
        for group in definition.groups
    ]
    # A ; at the begin of a line ends more than the definition (semicolon-first).
    last = len(words) + len(definition.members) - 1
    for number, word in enumerate([*words, *map(str, definition.members)]):
        end = ";" if number == last else ""
        comma = "," if len(words) <= number < last else ""
        yield f"    {word}{comma}{end}"


def _group_flags(group: Group, flags: GroupFlags) -> list[str]:
    return list(_flags(group.flags)) or [f"rate={flags.used_rate}"]


def _flags(flags: GroupFlags) -> Iterator[str]:
    for name, value in (("rate", flags.rate), ("mtu", flags.mtu), ("sl", flags.sl)):
        if value is not None:
            yield f"{name}={value}"
    for scope in flags.scopes:
        yield f"scope={scope}"
    if flags.q_key is not None:
        yield f"Q_Key=0x{flags.q_key:x}"
    if flags.tclass is not None:
        yield f"TClass={flags.tclass}"
    if flags.flow_label is not None:
        yield f"FlowLabel={flags.flow_label}"
