# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the hooks from VDSM's call to the files of /sys and back.

The host is a fake without tools and NetworkManager.
"""

from __future__ import annotations

import pytest
from support.fakes.fake_hosts import connectx3_ib
from support.host.hook_host import network, setup

from ovirt_rdma.host.changes.journal import Journal
from ovirt_rdma.host.paths import JOURNAL, POLICY_JSON, under
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, Policy
from ovirt_rdma.host.system.lock import one_run

pytestmark = pytest.mark.hypervisor


@pytest.fixture
def host(host):
    connectx3_ib(host.root)
    host.enable()
    return host


def asking(mode, **more):
    return setup({"storage": network("ib0", custom={"ipoib_mode": mode}, **more)})


def mode(host):
    return under(host.root, "/sys/class/net/ib0/mode").read_text().strip()


def runs(host):
    runs = Journal(host.root).ledger().runs
    return [(run.verb, run.by, run.outcome) for run in runs]


def policy(**rule):
    return Policy(host=HostPolicy((InterfaceRule(1, "interface 1", port=1, **rule),)))


def test_a_network_gets_the_mode_that_it_asks_for(vdsm, host):
    request = asking("connected", mtu=9000)
    assert vdsm.before_network_setup(request) == request
    assert mode(host) == "connected"
    assert runs(host) == [("hook", "before_network_setup", "done")]
    # A second request, as after each change of the network, needs no run.
    assert vdsm.before_network_setup(request) == request
    assert len(runs(host)) == 1
    assert vdsm.before_network_setup(asking("datagram")) == asking("datagram")
    assert mode(host) == "datagram"


def test_why_it_cannot_be_is_what_the_engine_gets(vdsm, host, hook_error):
    address = under(host.root, "/sys/class/net/ib0/address")
    address.write_text("00" + address.read_text()[2:])
    with pytest.raises(hook_error) as caught:
        vdsm.before_network_setup(asking("connected"))
    assert caught.value.value[0].startswith(
        b"network storage: ib0 cannot be set to connected mode: the driver accepts no"
    )
    assert mode(host) == "datagram"


def test_a_rollback_sets_no_mode(vdsm, host):
    request = asking("connected")
    request["request"]["options"]["_inRollback"] = True
    assert vdsm.before_network_setup(request) == request
    assert mode(host) == "datagram"


def test_a_policy_that_is_broken_is_no_failure(vdsm, host):
    host.write(POLICY_JSON, "{")
    for call in (vdsm.before_network_setup, vdsm.after_network_setup):
        assert call(asking("connected")) == asking("connected")
    assert not vdsm.before_vdsm_start()
    assert mode(host) == "datagram"
    # Refusals that do not need the policy still work, and there are no others.
    assert vdsm.before_network_setup(setup()) == setup()


def test_a_journal_that_is_broken_is_no_failure(vdsm, host):
    host.load(policy(transport_mode="connected"))
    host.write(JOURNAL, "{\n{\n")
    assert vdsm.before_network_setup(asking("connected")) == asking("connected")
    assert vdsm.after_network_setup(asking("connected")) == asking("connected")
    assert not vdsm.before_vdsm_start()
    assert mode(host) == "datagram"


def test_nothing_is_done_of_a_policy_that_takes_a_link_down(vdsm, host):
    host.load(policy(transport_mode="connected"))
    assert not vdsm.before_vdsm_start()
    assert vdsm.after_network_setup(asking("datagram")) == asking("datagram")
    assert mode(host) == "datagram"
    assert runs(host) == []


def test_another_run_stops_only_who_asks_for_a_mode(vdsm, host, hook_error):
    host.load(policy(transport_mode="connected"))
    with one_run(host.root):
        assert not vdsm.before_vdsm_start()
        assert vdsm.after_network_setup(setup()) == setup()
        plain = setup({"storage": network("ib0")})
        assert vdsm.before_network_setup(plain) == plain
        with pytest.raises(hook_error) as caught:
            vdsm.before_network_setup(asking("connected"))
    assert b"another run of ovirt-rdma-host is changing" in caught.value.value[0]


def test_auto_that_comes_to_datagram_does_not_carry_all(vdsm, host, hook_error):
    address = under(host.root, "/sys/class/net/ib0/address")
    address.write_text("00" + address.read_text()[2:])
    with pytest.raises(hook_error) as caught:
        vdsm.before_network_setup(asking("auto", mtu=65520))
    assert caught.value.value[0].startswith(
        b"network storage: MTU 65520 is too large for ib0 in datagram mode"
    )
