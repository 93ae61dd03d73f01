# SPDX-License-Identifier: GPL-2.0-or-later
"""Block storage with real systemd: vdsmd waits for targets, but not long; the daemon
tries again.
"""

from __future__ import annotations

import json

import pytest

from lab import installed_host, modules
from lab.guest import Guest
from lab.qemu import Wire
from lab.soft_roce import SoftRoce
from lab.srp_target import CM_PORT, SERVICE_GUID, SrpServer

pytestmark = pytest.mark.faults

ADDRESS = "10.99.0.1"
UNIT, DAEMON = "ovirt-rdma-block.service", "ovirt-rdmad.service"
POLICY = f"""\
version: 1
block:
  login_timeout: 3
  rescan_interval: 60
  srp:
    - name: array
      id_ext: {SERVICE_GUID}
      ioc_guid: {SERVICE_GUID}
      dest: {ADDRESS}:{CM_PORT}
"""
# It stands for VDSM's, which has the same place in the order.
VDSMD = """\
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/touch /run/vdsmd-started
"""
_START = f"""
systemctl stop vdsmd.service {UNIT}
rm -f /run/vdsmd-started
begin=$(date +%s)
systemctl start {UNIT} vdsmd.service || {{ journalctl -u {UNIT}; exit 1; }}
echo $(($(stat -c %Y /run/vdsmd-started) - begin))
"""


def test_a_target_that_is_gone_at_boot_and_returns() -> None:
    wire = Wire(0)
    with (
        Guest("server", nics=[wire.a], memory_mb=768) as server,
        Guest("hypervisor", nics=[wire.b], systemd=True) as guest,
    ):
        fabric = SoftRoce()
        server.wait_ready()
        fabric.bring_up(server, "eth0", [f"{ADDRESS}/24"])
        guest.wait_ready()
        fabric.bring_up(guest, "eth0", ["10.99.0.2/24"])
        modules.load(guest, "sd_mod")
        installed_host.install(guest)

        def run(line: str, input: str = "", timeout: float = 600) -> str:
            done = guest.run(line, input=input, timeout=timeout, check=True)
            return done.stdout.strip()

        def sessions() -> list[dict[str, object]]:
            shown = run(f"{installed_host.COMMAND} block list -o json")
            found: list[dict[str, object]] = json.loads(shown)["sessions"]
            return found

        run("cat > /run/systemd/system/vdsmd.service; systemctl daemon-reload", VDSMD)
        wanted = run("systemctl show -p Wants --value multi-user.target")
        assert UNIT in wanted.split()
        run("cat > /etc/ovirt-rdma/policy.yaml", POLICY)
        run(f"{installed_host.COMMAND} policy load")

        # Nothing before the operator enables it.
        assert int(run(_START)) < 30
        assert run(f"systemctl show -p ConditionResult --value {UNIT}") == "no"
        run(f"{installed_host.COMMAND} enable --mode host")
        # No target listens: vdsmd starts after a minute.
        assert 50 <= int(run(_START)) <= 100
        assert sessions() == []
        run(f"until systemctl is-active {DAEMON}; do sleep 1; done")
        run("journalctl --sync")
        told = run(f"journalctl -o cat -u {UNIT}")
        assert "srp 'array'" in told

        target = SrpServer(server)
        target.add_disk(0, 64 << 20)
        target.serve("rxe0", 1, ADDRESS)
        session = "ls /sys/class/srp_remote_ports/* > /dev/null 2>&1"
        run(f"until {session}; do sleep 1; done", timeout=300)
        (found,) = sessions()
        assert found["state"] == "running"

        # With the target, vdsmd does not wait, and a session stays as it is.
        units = f"-u {UNIT} -u {DAEMON}"
        lines = f"journalctl --sync; journalctl -o cat {units} | grep -c array"
        before = run(lines)
        run(_START)
        assert (run(lines), len(sessions())) == (before, 1)
        # New LUNs come by themselves.
        target.add_disk(1, 64 << 20)
        target.offer(1, ADDRESS)
        run("until [ -b /dev/sdb ]; do sleep 1; done", timeout=300)
