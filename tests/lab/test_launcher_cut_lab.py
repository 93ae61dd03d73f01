# SPDX-License-Identifier: GPL-2.0-or-later
"""Test a launcher that is truncated at any point, with a real systemd.

Stock vdsmd must run, and enable, status and disable must report that.

There is no SELinux: Debian's policy has no type for VDSM's programs, so a guest would
not show EL's domains. tests/storage/vdsm/test_selinux_domain.py compares ExecStart with
those.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab.guest import Guest
from lab.vdsm_daemon import VdsmDaemon
from ovirt_rdma.host.paths import DROPIN_LINK, LAUNCHER, STOCK_VDSMD

# In make check, test_launcher_lab.py tries single faults of the launcher, and
# tests/storage/vdsm/test_launcher_chain.py cuts at every byte, without systemd.
pytestmark = pytest.mark.faults

RAN = "/run/vdsm/ran"
WHOLE = "/run/launcher"
STOCK = f"#!/bin/sh\necho stock > {RAN}.new\nmv {RAN}.new {RAN}\nexec sleep 3600\n"
# systemd refuses a sixth start within 10 s, except after reset-failed.
START = f"""
start() {{
    rm -f {RAN}
    systemctl reset-failed vdsmd 2>/dev/null
    systemctl restart vdsmd
    for i in $(seq 600); do
        [ -e {RAN} ] && break
        [ "$(systemctl is-active vdsmd)" = failed ] && break
        sleep 0.1
    done
    cat {RAN} 2>/dev/null || echo nothing
}}
"""


@pytest.fixture(scope="module")
def vdsmd() -> Iterator[VdsmDaemon]:
    with Guest("hypervisor", systemd=True) as guest:
        found = VdsmDaemon(guest)
        guest.run(f"cp {LAUNCHER} {WHOLE}", check=True)
        guest.run(f"cat > {STOCK_VDSMD}", input=STOCK, check=True)
        guest.run("systemctl daemon-reload", check=True)
        yield found


def starts(vdsmd: VdsmDaemon, line: str = "start") -> list[str]:
    done = vdsmd.guest.run(f"{START}{line}", check=True, timeout=300)
    return done.stdout.splitlines()


def in_journal(vdsmd: VdsmDaemon, text: str) -> int:
    found = vdsmd.guest.run("journalctl --sync; journalctl -t vdsmd -o cat").stdout
    return found.count(text)


def running(vdsmd: VdsmDaemon) -> object:
    status = json.loads(vdsmd.command("status", "-o", "json").stdout)
    return status["running"] and status["running"]["program"]


def test_stock_starts_before(vdsmd: VdsmDaemon) -> None:
    assert starts(vdsmd) == ["stock"]
    assert vdsmd.command("enable").exit_code == 0
    vdsmd.guest.run(f"[ -h {DROPIN_LINK} ]", check=True)


def test_cut_anywhere_stock_starts(vdsmd: VdsmDaemon) -> None:
    size = int(vdsmd.guest.run(f"stat -c %s {WHOLE}", check=True).stdout)
    cuts = range(0, size, 50)
    assert len(cuts) > 40
    before = in_journal(vdsmd, "starting stock vdsmd instead: ")
    cut = f"head -c {{}} {WHOLE} > {LAUNCHER}; start"
    ran = {at: starts(vdsmd, cut.format(at)) for at in cuts}
    assert ran == {at: ["stock"] for at in cuts}
    after = in_journal(vdsmd, "starting stock vdsmd instead: ")
    assert after - before == len(cuts)


def test_whole_again_it_is_ours_until_disable(vdsmd: VdsmDaemon) -> None:
    vdsmd.guest.run(f"cat {WHOLE} > {LAUNCHER}", check=True)
    begin = (
        "systemctl reset-failed vdsmd; systemctl restart vdsmd; "
        "until journalctl --sync && journalctl -t vdsmd -o cat | "
        "grep -q 'NFS connections are made by'; do sleep 0.2; done"
    )
    vdsmd.guest.run(begin, check=True, timeout=300)
    assert running(vdsmd) == "launcher"
    assert vdsmd.command("disable", "--restart-vdsmd", timeout=180).exit_code == 0
    assert vdsmd.guest.run(f"[ -e {DROPIN_LINK} ]").exit_code != 0
    assert starts(vdsmd) == ["stock"]
    assert running(vdsmd) is None  # this stock vdsmd is not Python
