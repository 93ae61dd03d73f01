# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests with whole plans, from the policy's text to the changes on a fake host: they
are applied, kept over a boot, and reverted.
"""

import os
from dataclasses import replace

import pytest
from support.fakes.fake_changes import changing
from support.fakes.fake_hosts import connectx3_ib
from support.fakes.fake_processes import run_process
from support.fakes.fake_root import Pci
from support.host.effects_host import (
    MemoryJournal,
    Told,
    apply_steps,
    revert,
    this_run,
)

from ovirt_rdma.host.changes.boot import restore_netdev
from ovirt_rdma.host.changes.journal import Journal
from ovirt_rdma.host.policy.load import load_policy_file
from ovirt_rdma.host.rules.base import (
    LINK_DOWN,
    OPENSM_FILE,
    OPENSM_SETTINGS,
    PROFILE,
    REBOOT,
    UNIT,
    Change,
    Step,
)
from ovirt_rdma.host.rules.ipoib import new_profile
from ovirt_rdma.host.rules.registry import decide

pytestmark = pytest.mark.hypervisor

HCA = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")
RULE = "version: 1\nhost:\n  interfaces:\n    - match: {link_layer: infiniband}\n"
POLICIES = {
    "connected": "      transport_mode: connected\n      mtu: 65520\n",
    # The kernel sets another MTU with the mode.
    "same MTU": "      transport_mode: connected\n      mtu: 4092\n",
    "datagram": "      transport_mode: datagram\n      mtu: auto\n      tso: off\n",
    "children": "      pkey_children: [0x8001, 0x8002]\n      mtu: 2000\n"
    "      transport_mode: connected\n",
    "port": "      transport_mode: connected\n      port_mtu: 2048\n",
    "modules": "      tso: off\n  modules: [ib_iser]\n"
    '  module_options:\n    mlx4_core: {port_type_array: "1,1"}\n',
}
# Where settings are kept: nowhere (no NetworkManager, or it does not manage the
# netdevs), in new profiles, or in an admin's own.
CASES = [
    *[(policy, "none") for policy in POLICIES],
    *[(policy, "managed") for policy in ("connected", "children")],
    *[(policy, "profiles") for policy in ("connected", "datagram", "children")],
    ("children", "unmanaged"),
]


def a_host(path, manager):
    host = changing(connectx3_ib, path)
    host.group_mtu = 4092
    host.package("rdma-core", "48.0")
    host.rdma_core_lists()
    host.adapter(HCA, "0x028000")
    for port in (1, 2):
        host.mlx4_port(HCA, port, "ib", mtu=4096)
        host.fabric_port("mlx4_0", port, pkeys=("0xffff", "0x8001", "0x8002"))
        host.ib_mtus("mlx4_0", port, 4096, 4096)
        host.write(f"/sys/class/net/ib{port - 1}/carrier", "1")
        without_addresses(host, f"ib{port - 1}")
    if manager == "none":
        return host
    host.network_manager()
    for name in ("ib0", "ib1"):
        host.nm_device(name, "unmanaged" if manager == "unmanaged" else "disconnected")
        if manager == "profiles":
            uuid = host.nm_profile(name)
            host.activate(uuid)
    return host


def without_addresses(host, name):
    address = host.text(name, "address")
    host.netdev(name, type=32, mtu=4092, address=address, kind="ipoib")


def state(host):
    """Return all that a run may change: netdevs, profiles, files of ours."""
    files = [p for p in (host.path / "etc").rglob("*") if p.is_file()]
    return (
        {name: host.state(name) for name in host.netdevs() if "ib" in name},
        {u: dict(p.properties) for u, p in host._nm_profiles.items()},
        {str(path): path.read_bytes() for path in files},
        [
            (host.path / HCA.folder[1:] / f"mlx4_port{n}_mtu").read_text()
            for n in (1, 2)
        ],
    )


class Run:
    """Runs ``ovirt-rdma-host apply`` and ``revert`` as the command does."""

    def __init__(self, host, tmp_path, policy):
        self.host = host
        path = tmp_path / "policy.yaml"
        path.write_text(RULE + policy)
        self.policy = load_policy_file(path).policy
        self.journal = Journal(host.path)

    def facts(self):
        return self.host.reader().facts()

    def planned(self):
        return [s for s in decide(self.facts(), self.policy).steps if not s.refused]

    def still_planned(self):
        return {step.id for step in self.planned()}

    def apply(self):
        return apply_steps(
            self.host.effects(),
            self.journal,
            self.planned(),
            Told(),
            self.facts(),
            verify=self.still_planned,
        )

    def revert(self):
        effects, facts = self.host.effects(), self.facts()
        return revert(effects, self.journal, facts, Told(), allow_link_down=True)

    def boot(self):
        """With udev, which starts our unit for each netdev that appears."""
        self.host.reboot()
        seen = set()
        while self.host.netdevs() - seen:
            for name in sorted(self.host.netdevs() - seen):
                seen.add(name)
                said = []
                door = self.host.effects()
                code = restore_netdev(
                    self.host.path, self.host.run, name, said.append, door
                )
                assert code == 0, said


@pytest.mark.parametrize(("policy", "manager"), CASES)
def test_done_kept_over_a_boot_and_taken_back(tmp_path, policy, manager, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # for speed alone
    host = a_host(tmp_path / "host", manager)
    run = Run(host, tmp_path, POLICIES[policy])
    before = state(host)
    steps = run.planned()
    assert steps
    result = run.apply()
    assert (result.outcome, result.left) == ("done", ()), result.sentence
    after = state(host)
    assert after != before
    assert host.refused() == {}
    assert [s.id for s in run.planned() if s.effect != REBOOT] == []

    run.boot()
    assert state(host) == after
    assert host.refused() == {}
    assert [s.id for s in run.planned() if s.effect != REBOOT] == []

    result = run.revert()
    assert (result.outcome, result.left) == ("done", ()), result.sentence
    assert state(host) == before
    assert host.refused() == {}


# An undo of which the last part fails, or that is killed before it.

GUID = "0x0002c90300fb1231"
OPENSM = f"ovirt-rdma-opensm@{GUID}.service"
SETTINGS = f"/etc/ovirt-rdma/opensm-{GUID}.conf"
CHILD = "ib0.8001"
TEXT = "# ovirt-rdma revision 1\n"
PARTS = {
    "kill -HUP 7": Change(OPENSM_FILE, "/etc/rdma/partitions.conf", None, "x=1;\n"),
    f"systemctl try-restart {OPENSM}": Change(OPENSM_SETTINGS, SETTINGS, None, TEXT),
    f"systemctl disable --now {OPENSM}": Change(
        UNIT, OPENSM, "disabled", "enabled", "enabled"
    ),
    "nmcli --wait 50 connection up": Change(
        PROFILE, "", None, "off", "ethtool.feature-tso"
    ),
}


def a_step(*changes, rule="S"):
    words = ("sentence", "before", "after", LINK_DOWN, "reason", "undo")
    return Step(rule, "x", *words, changes)


@pytest.fixture
def there(tmp_path):
    host = changing(connectx3_ib, tmp_path)
    host.network_manager()
    host.systemd()
    host.write("/sys/class/net/ib0/carrier", "1")
    without_addresses(host, "ib0")
    run_process(host.path, 7, "/usr/sbin/opensm")
    for command in list(PARTS)[:2]:
        host.runner.answer(command, "")
    return host


def try_revert(host, journal):
    facts = host.reader().facts()
    return revert(host.effects(), journal, facts, Told(), allow_link_down=True)


@pytest.mark.parametrize("how", ["failed", "killed"])
@pytest.mark.parametrize("command", PARTS)
def test_the_last_part_of_an_undo_is_done_by_the_next(there, command, how):
    """opensm reads its earlier file, and NetworkManager applies the earlier profile."""
    change, journal = PARTS[command], MemoryJournal()
    if change.kind == PROFILE:
        uuid = there.nm_profile("ib0")
        there.activate(uuid)
        change = replace(change, target=uuid)
    facts = there.reader().facts()
    apply_steps(there.effects(), journal, [a_step(change)], Told(), facts)
    there.fail(command)
    if how == "killed":
        there.failures[tuple(command.split())] = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            try_revert(there, journal)
    else:
        assert try_revert(there, journal).outcome == "partly rolled back"
    there.units[OPENSM] = "disabled"  # systemd has removed the link, and failed then
    there.failures.clear()
    there.runner.ran.clear()
    if how == "killed":
        run = this_run(there.effects(), journal)
        assert run.recover(even_in_use=True).outcome == "done"
    else:
        assert try_revert(there, journal).outcome == "done"
    assert any(" ".join(argv).startswith(command) for argv in there.runner.ran)
    assert (there.refused(), journal.ledger().applied) == ({}, ())


def test_a_child_that_stays_after_its_profile_is_not_called_removed(there, monkeypatch):
    journal, changes = MemoryJournal(), new_profile(CHILD, "datagram", "ib0", "0x8001")
    step = a_step(*changes, rule="IPOIB-PKEY-01")
    apply_steps(there.effects(), journal, [step], Told(), there.reader().facts())
    with monkeypatch.context() as patched:
        patched.setattr(there, "remove_netdev", lambda name: None)
        for _ in range(2):
            assert try_revert(there, journal).outcome == "partly rolled back"
            assert there.profile(CHILD) is None
    there.remove_netdev(CHILD)
    assert try_revert(there, journal).outcome == "done"
