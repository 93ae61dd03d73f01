# SPDX-License-Identifier: GPL-2.0-or-later
"""ovirt-rdma-opensm@.service under systemd, with the real opensm."""

from __future__ import annotations

import re
from pathlib import Path

import managed_host as site
import pytest

from lab.guest import Guest

pytestmark = pytest.mark.faults


def test_opensm_under_systemd(tmp_path: Path) -> None:
    guest = Guest("hv1", systemd=True, disk=tmp_path / "hv1.img")
    with guest:
        host = site.ManagedHost(guest)

        # Without its settings it does not start, not even by hand.
        host.said(f"systemctl start '{site.UNIT}'")
        assert host.shown("ConditionResult") == "no"
        assert host.shown("ActiveState") == "inactive"
        assert host.said("pgrep -x opensm || echo none") == "none"

        host.command("policy", "load")
        enabled = host.command("fabric", "sm", "enable")
        assert enabled["proven"] is True
        host.waits_for_master()
        _is_at_work(host)
        _has_its_sandbox(host)

        # After a kill, systemd starts it again.
        host.said(f"rm {site.LOG}; kill -KILL {host.shown('MainPID')}")
        host.said(f"until grep -q MASTER {site.LOG}; do sleep 1; done")
        assert host.shown("NRestarts") == "1"
        host.waits_for_master()

        # A boot starts it.
        host.said(f"rm {site.LOG}; sync")
        guest.kill()
        guest.power_on()
        guest.wait_ready()
        host.connect()
        host.waits_for_master()
        _is_at_work(host)

        disabled = host.command("fabric", "sm", "disable")
        assert disabled["outcome"] == "done"
        assert host.shown("ActiveState") == "inactive"
        assert host.said(f"systemctl is-enabled '{site.UNIT}' || true") == "disabled"
        assert host.said(f"ls {site.SETTINGS} 2> /dev/null || true") == ""
        assert guest.run("ASKED_AT=hv2 sminfo").exit_code != 0


def _is_at_work(host: site.ManagedHost) -> None:
    assert host.shown("ActiveState") == "active"
    assert host.said(f"systemctl is-enabled '{site.UNIT}'") == "enabled"
    assert "MASTER" in host.said(f"cat {site.LOG}")
    # What opensm keeps, in folders that systemd has made.
    assert "guid2lid" in host.said(f"ls {site.CACHE}").split()
    assert host.said(f"stat -c %U {site.CACHE}") == "root"


def _has_its_sandbox(host: site.ManagedHost) -> None:
    """The kernel's own view of the process."""
    # Linux 6.12 has keys without a value.
    text = host.said(f"cat /proc/{host.shown('MainPID')}/status")
    status = dict(re.findall(r"^(\w+):\t(.*)$", text, re.M))
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
