# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that a network's ipoib_mode is set before VDSM sets up the network, or refused
with the reason; on a fake host, with the whole product.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from support.fakes.fake_changes import ChangingRoot, changing
from support.fakes.fake_hosts import connectx3_ib
from support.host.effects_host import apply_steps, revert

from ovirt_rdma.host.changes.boot import boot_settings
from ovirt_rdma.host.changes.journal import (
    DONE,
    HOOK,
    ROLLED_BACK,
    Journal,
)
from ovirt_rdma.host.changes.run import decide_for, loaded_policy
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.store import StoredPolicyProblem, store
from ovirt_rdma.host.services.hook_runs import set_modes
from ovirt_rdma.host.services.network_request import WantedMode
from ovirt_rdma.host.system.lock import one_run

pytestmark = pytest.mark.hypervisor

POINT = "before_network_setup"


@dataclass
class Site:
    host: ChangingRoot
    said: list = field(default_factory=list)

    def policy(self, text):
        policy = parse_policy(f"version: 1\nhost:\n{text}", "p.yaml").policy
        store(policy, "p.yaml", under(self.host.path, POLICY_JSON))

    def set(self, mode, netdev="ib0", mtu=1500, lock_wait_s=0.0):
        wanted = WantedMode("storage", netdev, mode, netdev, mtu)
        return set_modes(
            self.host.path,
            [wanted],
            POINT,
            self.said.append,
            run=self.host.run,
            host=self.host.effects(),
            lock_wait_s=lock_wait_s,
        )

    @property
    def state(self):
        return self.host.text("ib0", "mode"), self.host.text("ib0", "mtu")

    @property
    def runs(self):
        runs = Journal(self.host.path).ledger().runs
        return [(run.verb, run.by, run.outcome) for run in runs]


@pytest.fixture
def plain(tmp_path):
    """Without NetworkManager."""
    return Site(changing(connectx3_ib, tmp_path))


@pytest.fixture
def managed(tmp_path):
    host = changing(connectx3_ib, tmp_path)
    host.network_manager()
    host.nm_device("ib0")
    host.nm_profile(
        "ib0",
        active_on="ib0",
        properties={"infiniband.transport-mode": "datagram"},
    )
    return Site(host)


def in_use(site):
    site.host.nfs_mount("10.0.0.1:/vm", "/rhev/data-center/mnt/10.0.0.1:_vm", "rdma")


def test_it_is_set_with_the_networks_mtu_and_in_the_journal(plain):
    assert plain.set("connected", mtu=9000) == ""
    assert plain.state == ("connected", "9000")
    assert plain.runs == [(HOOK, POINT, DONE)]
    assert "IPOIB-MODE-01/ib0: datagram -> connected" in plain.said
    # It is a boot setting.
    assert boot_settings(Journal(plain.host.path).ledger())


def test_a_profile_keeps_it(managed):
    assert managed.set("connected") == ""
    assert managed.state[0] == "connected"
    (profile,) = managed.host.reader().facts().network_manager.profiles
    assert profile.value("infiniband.transport-mode") == "connected"


def test_what_is_so_already_takes_no_run(plain):
    assert plain.set("datagram") == ""
    assert plain.set("auto") == ""
    assert plain.runs == []


def test_what_is_so_already_needs_nothing_of_another_run(plain):
    """A network that has its mode may change its address meanwhile."""
    with one_run(plain.host.path, by="apply"):
        assert plain.set("datagram") == ""
    plain.policy(CONNECTED)
    apply(plain, confirm_by=int(plain.host.time) - 1)
    assert plain.set("datagram", "ib1") == ""


@pytest.mark.parametrize(
    "mtu, mode", [(1500, "datagram"), (2044, "datagram"), (9000, "connected")]
)
def test_auto_goes_by_the_mtu_that_the_network_asks_for(plain, mtu, mode):
    plain.host.ib_mtus("mlx4_0", 1, 4096, 2048)
    assert plain.set("auto", mtu=mtu) == ""
    assert plain.state[0] == mode


def test_users_are_named_and_nothing_is_done(plain):
    in_use(plain)
    before = plain.state
    assert plain.set("connected") == (
        "network storage: ib0 is in use (nfs: 10.0.0.1:/vm at "
        "/rhev/data-center/mnt/10.0.0.1:_vm), and the change to connected mode takes "
        "its link down for a moment: put the host into maintenance first"
    )
    assert plain.state == before
    assert plain.runs == []


def test_users_of_a_netdev_that_is_right_do_not_matter(plain):
    in_use(plain)
    assert plain.set("datagram") == ""


def test_a_mode_that_the_adapter_has_not_is_refused_with_the_reason(plain):
    path = under(plain.host.path, "/sys/class/net/ib0/address")
    path.write_text("00" + path.read_text()[2:])
    refused = plain.set("connected")
    assert refused.startswith(
        "network storage: ib0 cannot be set to connected mode: the driver accepts no "
        "connections"
    )
    assert plain.runs == []
    assert plain.set("auto", mtu=9000) == ""


def test_a_mode_that_does_not_stick_is_taken_back_and_told(plain):
    before = plain.state
    plain.host.ignored.add("/sys/class/net/ib0/mode")
    refused = plain.set("connected")
    assert refused.startswith(
        "network storage: connected mode of ib0 could not be set: "
    )
    assert plain.state == before
    assert plain.runs == [(HOOK, POINT, ROLLED_BACK)]
    assert not boot_settings(Journal(plain.host.path).ledger())


def test_another_run_is_waited_for_and_then_told(plain):
    with one_run(plain.host.path, by="apply"):
        assert plain.set("connected").startswith(
            "network storage: connected mode of ib0 cannot be set now: another run of "
            "ovirt-rdma-host is changing this host: apply (process "
        )
    assert plain.set("connected") == ""


class Nobody:
    """A listener."""

    def doing(self, *_):
        pass

    done = note = doing


class PowerCut(BaseException):
    pass


CONNECTED = """\
  interfaces:
    - match: {port: 1}
      transport_mode: connected
"""


def apply(site, effects=None, **request):
    """Apply the policy as ``ovirt-rdma-host apply`` does."""
    host, root = site.host, site.host.path
    prepared = decide_for(host.reader().facts(), loaded_policy(root))
    steps = [
        step for step in prepared.decision.applicable if step.rule == "IPOIB-MODE-01"
    ]
    assert steps
    effects, facts = effects or host.effects(), prepared.facts
    return apply_steps(effects, Journal(root), steps, Nobody(), facts, **request)


def test_a_run_that_awaits_confirmation_is_left_alone(plain):
    plain.policy(CONNECTED)
    apply(plain, confirm_by=int(plain.host.time) - 1)
    assert plain.set("datagram") == (
        "network storage: datagram mode of ib0 cannot be set now: run 1 awaits "
        "confirmation (ovirt-rdma-host confirm, or to undo it: ovirt-rdma-host revert)"
    )
    assert plain.state[0] == "connected"
    # It would be datagram again under the network, if nobody confirms.
    assert "connected mode of ib0 cannot be set now" in plain.set("connected")


def test_an_interrupted_run_that_took_a_link_down_is_the_operators(plain):
    plain.policy(CONNECTED)
    effects = plain.host.effects()

    def cut(act):
        raise PowerCut

    effects.do = cut
    with pytest.raises(PowerCut):
        apply(plain, effects)
    run = Journal(plain.host.path).ledger().interrupted
    assert run.acts and all(change.found is None for change in run.acts)
    assert plain.set("connected") == (
        "network storage: connected mode of ib0 cannot be set now: run 1 (apply) was "
        "interrupted, and is not rolled back (ovirt-rdma-host apply, or revert: each "
        "rolls it back first; if not, find out why the journal cannot be written)"
    )


def test_so_is_an_interrupted_revert(plain):
    """It has no changes of its own: what it takes down is in the runs that it ends."""
    plain.policy(CONNECTED)
    apply(plain)
    effects = plain.host.effects()

    def cut(act):
        raise PowerCut

    effects.undo = cut
    facts, journal = plain.host.reader().facts(), Journal(plain.host.path)
    with pytest.raises(PowerCut):
        revert(effects, journal, facts, Nobody())
    assert "run 2 (apply) was interrupted" in plain.set("datagram")
    assert plain.state[0] == "connected"


def test_a_policy_that_wants_another_mode_is_told(plain):
    plain.policy(CONNECTED)
    assert plain.set("datagram") == ""
    (note,) = plain.said
    assert note.startswith("network storage asks for datagram mode of ib0, ")
    for part in ("(interface 1)", "connected", "transport_mode", "apply"):
        assert part in note
    assert plain.state[0] == "datagram"


def test_the_policys_other_words_for_the_netdev_count(plain):
    plain.policy("  interfaces:\n    - match: {port: 1}\n      tso: off\n")
    plain.set("connected")
    assert plain.state[0] == "connected"
    # The network requests the mode only.
    steps = {act.step for act in Journal(plain.host.path).ledger().applied}
    assert steps == {"IPOIB-MODE-01/ib0"}


def test_a_netdev_of_no_known_port_is_left_and_told(plain):
    assert plain.set("connected", netdev="ib7") == ""
    (note,) = plain.said
    assert note.startswith("network storage asks for connected mode of ib7: ")
    assert note.endswith("; unchanged")


def test_a_policy_that_cannot_be_used_is_our_trouble(plain):
    under(plain.host.path, POLICY_JSON).parent.mkdir(parents=True, exist_ok=True)
    under(plain.host.path, POLICY_JSON).write_text("{")
    with pytest.raises(StoredPolicyProblem):
        plain.set("connected")
    assert plain.state[0] == "datagram"
