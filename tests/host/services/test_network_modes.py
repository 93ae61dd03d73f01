# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that a network's ipoib_mode is set before VDSM sets up the network, or refused
with the reason; on a fake host, with the whole product.
"""

from __future__ import annotations

import pytest
from support.host.effects_host import Told, apply_steps, revert
from support.host.memory_host import Killed

from ovirt_rdma.host.changes.boot import boot_settings
from ovirt_rdma.host.changes.journal import (
    DONE,
    HOOK,
    ROLLED_BACK,
    Journal,
)
from ovirt_rdma.host.changes.run import decide_for, loaded_policy
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.store import StoredPolicyProblem
from ovirt_rdma.host.system.lock import one_run

pytestmark = pytest.mark.hypervisor

POINT = "before_network_setup"


def state(site):
    return site.host.text("ib0", "mode"), site.host.text("ib0", "mtu")


def in_use(site):
    site.host.nfs_mount("10.0.0.1:/vm", "/rhev/data-center/mnt/10.0.0.1:_vm", "rdma")


def test_it_is_set_with_the_networks_mtu_and_in_the_journal(site):
    assert site.set("connected", mtu=9000) == ""
    assert state(site) == ("connected", "9000")
    assert site.runs == [(HOOK, POINT, DONE)]
    assert "IPOIB-MODE-01/ib0: datagram -> connected" in site.said
    # It is a boot setting.
    assert boot_settings(Journal(site.host.path).ledger())


def test_a_profile_keeps_it(site):
    site.host.network_manager()
    site.host.nm_device("ib0")
    properties = {"infiniband.transport-mode": "datagram"}
    site.host.nm_profile("ib0", active_on="ib0", properties=properties)
    assert site.set("connected") == ""
    assert state(site)[0] == "connected"
    (profile,) = site.host.reader().facts().network_manager.profiles
    assert profile.value("infiniband.transport-mode") == "connected"


def test_what_is_so_already_takes_no_run(site):
    assert site.set("datagram") == ""
    assert site.set("auto") == ""
    assert site.runs == []


def test_what_is_so_already_needs_nothing_of_another_run(site):
    """A network that has its mode may change its address meanwhile."""
    with one_run(site.host.path, by="apply"):
        assert site.set("datagram") == ""
    site.policy(CONNECTED)
    apply(site, confirm_by=int(site.host.time) - 1)
    assert site.set("datagram", "ib1") == ""


@pytest.mark.parametrize(
    "mtu, mode", [(1500, "datagram"), (2044, "datagram"), (9000, "connected")]
)
def test_auto_goes_by_the_mtu_that_the_network_asks_for(site, mtu, mode):
    site.host.ib_mtus("mlx4_0", 1, 4096, 2048)
    assert site.set("auto", mtu=mtu) == ""
    assert state(site)[0] == mode


def test_users_are_named_and_nothing_is_done(site):
    in_use(site)
    before = state(site)
    assert site.set("connected") == (
        "network storage: ib0 is in use (nfs: 10.0.0.1:/vm at "
        "/rhev/data-center/mnt/10.0.0.1:_vm), and the change to connected mode takes "
        "its link down for a moment: put the host into maintenance first"
    )
    assert state(site) == before
    assert site.runs == []


def test_users_of_a_netdev_that_is_right_do_not_matter(site):
    in_use(site)
    assert site.set("datagram") == ""


def test_a_mode_that_the_adapter_has_not_is_refused_with_the_reason(site):
    path = under(site.host.path, "/sys/class/net/ib0/address")
    path.write_text("00" + path.read_text()[2:])
    refused = site.set("connected")
    assert refused.startswith(
        "network storage: ib0 cannot be set to connected mode: the driver accepts no "
        "connections"
    )
    assert site.runs == []
    assert site.set("auto", mtu=9000) == ""


def test_a_mode_that_does_not_stick_is_taken_back_and_told(site):
    before = state(site)
    site.host.ignored.add("/sys/class/net/ib0/mode")
    refused = site.set("connected")
    assert refused.startswith(
        "network storage: connected mode of ib0 could not be set: "
    )
    assert state(site) == before
    assert site.runs == [(HOOK, POINT, ROLLED_BACK)]
    assert not boot_settings(Journal(site.host.path).ledger())


def test_another_run_is_waited_for_and_then_told(site):
    with one_run(site.host.path, by="apply"):
        assert site.set("connected").startswith(
            "network storage: connected mode of ib0 cannot be set now: another run of "
            "ovirt-rdma-host is changing this host: apply (process "
        )
    assert site.set("connected") == ""


def cut(act):
    raise Killed


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
    return apply_steps(effects, Journal(root), steps, Told(), facts, **request)


def test_a_run_that_awaits_confirmation_is_left_alone(site):
    site.policy(CONNECTED)
    apply(site, confirm_by=int(site.host.time) - 1)
    assert site.set("datagram") == (
        "network storage: datagram mode of ib0 cannot be set now: run 1 awaits "
        "confirmation (ovirt-rdma-host confirm, or to undo it: ovirt-rdma-host revert)"
    )
    assert state(site)[0] == "connected"
    # It would be datagram again under the network, if nobody confirms.
    assert "connected mode of ib0 cannot be set now" in site.set("connected")


def test_an_interrupted_run_that_took_a_link_down_is_the_operators(site):
    site.policy(CONNECTED)
    effects = site.host.effects()

    effects.do = cut
    with pytest.raises(Killed):
        apply(site, effects)
    run = Journal(site.host.path).ledger().interrupted
    assert run.acts and all(change.found is None for change in run.acts)
    assert site.set("connected") == (
        "network storage: connected mode of ib0 cannot be set now: run 1 (apply) was "
        "interrupted, and is not rolled back (ovirt-rdma-host apply, or revert: each "
        "rolls it back first; if not, find out why the journal cannot be written)"
    )


def test_so_is_an_interrupted_revert(site):
    """It has no changes of its own: what it takes down is in the runs that it ends."""
    site.policy(CONNECTED)
    apply(site)
    effects = site.host.effects()

    effects.undo = cut
    facts, journal = site.host.reader().facts(), Journal(site.host.path)
    with pytest.raises(Killed):
        revert(effects, journal, facts, Told())
    assert "run 2 (apply) was interrupted" in site.set("datagram")
    assert state(site)[0] == "connected"


def test_a_policy_that_wants_another_mode_is_told(site):
    site.policy(CONNECTED)
    assert site.set("datagram") == ""
    (note,) = site.said
    assert note.startswith("network storage asks for datagram mode of ib0, ")
    for part in ("(interface 1)", "connected", "transport_mode", "apply"):
        assert part in note
    assert state(site)[0] == "datagram"


def test_the_policys_other_words_for_the_netdev_count(site):
    site.policy("  interfaces:\n    - match: {port: 1}\n      tso: off\n")
    site.set("connected")
    assert state(site)[0] == "connected"
    # The network requests the mode only.
    steps = {act.step for act in Journal(site.host.path).ledger().applied}
    assert steps == {"IPOIB-MODE-01/ib0"}


def test_a_netdev_of_no_known_port_is_left_and_told(site):
    assert site.set("connected", netdev="ib7") == ""
    (note,) = site.said
    assert note.startswith("network storage asks for connected mode of ib7: ")
    assert note.endswith("; unchanged")


def test_a_policy_that_cannot_be_used_is_our_trouble(site):
    under(site.host.path, POLICY_JSON).parent.mkdir(parents=True, exist_ok=True)
    under(site.host.path, POLICY_JSON).write_text("{")
    with pytest.raises(StoredPolicyProblem):
        site.set("connected")
    assert state(site)[0] == "datagram"
