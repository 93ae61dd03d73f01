# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/reference has what code knows: which rule reads which fact, and messages.

WRITE_GOLDEN=1 writes both pages. A fact that no rule reads has its reason here.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import typing
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from support.golden.golden_hosts import DATA
from support.golden.golden_traps import TRAPS
from support.host.facts_of_everything import EVERYTHING
from support.host.rule_cases import sound_server

from ovirt_rdma.host.facts.devices import Adapter, Buffer, Dcb, PciIdentity, PriorityOf
from ovirt_rdma.host.facts.model import Facts, load
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.rules.base import View
from ovirt_rdma.host.rules.registry import RULES, SERVER_RULES
from ovirt_rdma.storage.messages import MOUNT, log_messages

DOCS = Path(__file__).parents[1] / "docs" / "reference"
SPDX = "<!-- SPDX-License-Identifier: GPL-2.0-or-later -->\n"

SHOWN = "shown by `facts`, for people"
PROOF = "`nfs list` and `nfs check` prove mounts with it"
REPORT = "in the report's picture"
# Facts that no rule reads on those hosts, and why.
NOT_READ = {
    "Bond.active": "`nfs check` and the report: IPoIB's rules hold for each member",
    "CmId": PROOF,
    "DegradedMark": PROOF,
    "Facts.cm_ids": PROOF,
    "Facts.booted_at": "dates of marks and reports",
    "Facts.degraded_marks": PROOF,
    "Facts.hostname": SHOWN,
    "Gid.index": "`nfs check` and the address of ports: each entry counts",
    "IrqCpus": SHOWN,
    "MountActivity.new_reads": "NFS-SLOTS-01, where requests wait",
    "MountActivity.new_writes": "NFS-SLOTS-01, where requests wait",
    "Neighbour": REPORT,
    "Netdev.operstate": "carrier and the port's state say it",
    "NfsMount": "`nfs list`: options and protocol say it",
    "OvirtNetwork.default_route": "`network` verbs of the engine",
    "OwnFile": "DAEMON-01, MODULE-02 and MODOPT-02, where there is such a file",
    "PortActivity.new_packets": "PORT-ERRORS-01, where packets were lost",
    "RdmaDevice.firmware": REPORT,
    "RdmaDevice.hca_type": SHOWN,
    "RdmaPort.neighbours": REPORT,
    "Requests": "NFS-SLOTS-01, where requests wait",
    "Route.gateway": SHOWN,
    "Route.problem": "NFSRDMA-03, where there is no route",
    "Route.source": "`nfs check` finds the port of an address with it",
    "Unit.enabled": "UNIT-01, where openibd is installed",
    "VfPort.number": "VF-02 sets GUIDs by it",
    "VfPort.pkey_indexes": "VF-03, for mlx4",
}


def _records(kind=Facts, found=None):
    """All records of facts, each once."""
    found = {} if found is None else found
    if kind in found:
        return found
    found[kind] = hints = typing.get_type_hints(kind)
    for hint in hints.values():
        for part in _parts(hint):
            if dataclasses.is_dataclass(part):
                _records(part, found)
    return found


def _parts(hint):
    yield hint
    for part in typing.get_args(hint):
        yield from _parts(part)


class _Watched:
    """Note which fields a rule reads: __getattribute__ of each record."""

    def __init__(self) -> None:
        self.rule = ""
        self.read: dict[str, dict[str, None]] = defaultdict(dict)

    @contextmanager
    def all_records(self):
        originals = {}
        for kind, hints in _records().items():
            originals[kind] = kind.__dict__.get("__getattribute__")

            def get(record, name, kind=kind, hints=hints):
                # Equality and hashes read all: they are no use of a field.
                if name in hints and self.rule:
                    caller = sys._getframe(1).f_code.co_name
                    if caller not in ("__eq__", "__hash__", "__repr__"):
                        self.read[f"{kind.__name__}.{name}"][self.rule] = None
                return object.__getattribute__(record, name)

            kind.__getattribute__ = get
        try:
            yield
        finally:
            for kind, original in originals.items():
                if original is None:
                    del kind.__getattribute__
                else:
                    kind.__getattribute__ = original


def _dumps():
    for folder in sorted(DATA.iterdir()):
        text = (folder / "policy.yaml").read_text()
        facts = load(folder / "facts.json")
        yield facts, parse_policy(text, "policy.yaml").policy
        yield facts, Policy()
    for path in sorted((DATA.parent / "facts").glob("*.json")):
        text = "version: 1\nnfs:\n  rules: [{server: '*', transport: require-rdma}]"
        yield load(path), parse_policy(text, "policy.yaml").policy


def _hosts():
    hosts = list(_dumps())
    yield from hosts
    yield EVERYTHING, parse_policy(_ALL, "policy.yaml").policy
    # RoCE with flow control, an E810 without RDMA, and a module's option.
    roce, _ = next(host for host in hosts if any(n.dcb for n in host[0].netdevs))
    dcb = Dcb((3,), None, "dscp", dscp_priorities=(PriorityOf(26, 3),))
    vlan = (PriorityOf(0, 3),)
    yield of_roce(roce, dcb, vlan), Policy()
    yield of_roce(roce, replace(dcb, trust="pcp"), vlan), Policy()
    wanted = "{match: {link_layer: ethernet}, roce: {priority: 4, buffer: 50000}}"
    text = f"version: 1\nhost: {{interfaces: [{wanted}]}}"
    shared = (Buffer(200000, (0, 1, 2, 3)), Buffer(62016, (4, 5, 6, 7)), Buffer(0))
    lossless = parse_policy(text, "policy.yaml").policy
    quiet = replace(dcb, pause_rx=False, pause_tx=False, buffers=shared)
    mlx5 = load(DATA / "connectx-6-dx-roce" / "facts.json")
    yield of_roce(mlx5, quiet, vlan), lossless
    nic = PciIdentity("0000:3b:00.0", "0x8086", "0x1592", "0x00")
    loaded = replace(roce.modules, loaded=(*roce.modules.loaded, "irdma"))
    adapters = (*roce.adapters, Adapter(nic, "ice", auxiliary=()))
    yield replace(roce, adapters=adapters, modules=loaded), Policy()
    yield replace(roce, nfs_server=sound_server()), Policy()


_ALL = """
version: 1
host:
  modules: [ib_srp]
  module_options: {mlx4_core: {num_vfs: 3}}
  interfaces:
    - {match: {device: "*"}, mtu: auto, transport_mode: auto, tso: auto, port_type: ib}
nfs:
  rules: [{server: "*", transport: require-rdma, paths: [10.0.0.1, 10.1.0.1]}]
"""


def of_roce(facts, dcb, egress):
    """Return the facts of a RoCE bond with these priorities."""
    return replace(
        facts,
        netdevs=tuple(
            replace(n, dcb=dcb if n.dcb else None, egress=egress) for n in facts.netdevs
        ),
        rdma_devices=tuple(
            replace(
                one,
                ports=tuple(replace(port, default_tos=106) for port in one.ports),
            )
            for one in facts.rdma_devices
        ),
    )


def _readers(tmp_path):
    watched = _Watched()
    hosts = list(_hosts())
    for rule, trap in TRAPS.items():
        for fires in (True, False):
            place = tmp_path / f"{rule}-{fires}"
            place.mkdir()
            facts = trap.build(place, fires).reader().facts()
            nfs = NfsRule(1, "rule 1", "*", "*", "prefer-rdma", options=trap.options)
            hosts.append((facts, Policy(nfs=NfsPolicy((nfs,)))))
    with watched.all_records():
        for facts, policy in hosts:
            for rule in (*RULES, *SERVER_RULES):
                watched.rule = rule.id
                rule.decide(View(facts, policy))
                watched.rule = ""
    return watched.read


def _facts_table(tmp_path):
    order = [rule.id for rule in (*RULES, *SERVER_RULES)]
    read, rows = _readers(tmp_path), []
    for kind, hints in _records().items():
        for name in hints:
            fact = f"{kind.__name__}.{name}"
            rules = sorted(read.get(fact, ()), key=order.index)
            # Who builds a view of all netdevs and ports reads what every rule needs.
            many = len(rules) > 20
            by = "all that look at ports or netdevs" if many else ", ".join(rules)
            why = NOT_READ.get(fact) or NOT_READ.get(kind.__name__)
            assert by or why, f"{fact}: no rule reads it, and no reason is given"
            rows.append((fact, by or f"*none*: {why}"))
    return rows


def _page(name, text):
    path = DOCS / name
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


def test_the_table_of_facts_is_what_the_rules_read(tmp_path):
    rows = _facts_table(tmp_path)
    lines = [f"| `{fact}` | {by} |" for fact, by in rows]
    _page(
        "facts.md",
        f"{SPDX}# Facts, and the rules that read them\n\nMade from the code: every "
        "field of `ovirt-rdma-host facts -o json`, and the rules that read it on the "
        "hosts of the tests. A rule that is not named cannot depend on the fact.\n\n"
        "| fact | rules |\n|---|---|\n" + "\n".join(lines) + "\n",
    )


def test_each_message_has_a_meaning_and_a_next_step():
    """``explain`` reads the page's second table; the first one is the code's."""
    heading, marker, log = (DOCS / "messages.md").read_text().partition("\n## The kern")
    beginning = heading[: heading.index("| message |")]

    def row(*cells):
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    mount = [
        row(f"`{one.text}`", one.meaning, one.fix, one.rdma_fix or "the same")
        for one in MOUNT
    ]
    messages = log_messages()
    assert len(messages) == log.count("\n| `") > 30
    for one in (*MOUNT, *messages):
        assert one.meaning and one.fix, one
    _page(
        "messages.md",
        f"{beginning}| message | meaning | what to do | over RDMA |\n"
        + "\n".join(["|---|---|---|---|", *mount, f"{marker}{log}"]),
    )
