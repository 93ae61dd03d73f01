# SPDX-License-Identifier: GPL-2.0-or-later
"""Cut the power of a host during ``apply``, and right after it.

The guest has a disk; driver, NetworkManager and our units start at boot as on a host.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from changed_host import CONNECTED_AND_TSO, FABRIC, ChangedHost, changed_host

# Boots and waits too long for make check.
pytestmark = pytest.mark.faults

# Like a driver that udev loads early at boot.
DRIVER = """\
[Unit]
Description=An HCA and its driver
DefaultDependencies=no
Before=NetworkManager.service network-pre.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=modprobe -a {modules}
ExecStart=insmod /var/lib/ib_fabric.ko {parameters}
[Install]
WantedBy=sysinit.target
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChangedHost]:
    disk = tmp_path_factory.mktemp("disk") / "hypervisor.img"
    with changed_host(CONNECTED_AND_TSO, disk=disk) as booted:
        unit = DRIVER.format(
            modules=" ".join(FABRIC.modules),
            parameters=" ".join(FABRIC.parameters()).replace("%", "%%"),
        )
        write = "cat > /etc/systemd/system/driver.service"
        booted.guest.run(write, input=unit, check=True)
        booted.said("cp /usr/lib/modules/$(uname -r)/ib_fabric.ko /var/lib")
        booted.said("systemctl daemon-reload")
        booted.said("systemctl enable driver.service NetworkManager.service; sync")
        yield booted


@pytest.fixture(scope="module")
def before(host: ChangedHost) -> list[str]:
    """The state of the host before our changes."""
    return host.look()


def power_cut(host: ChangedHost, timeout: float = 180.0) -> None:
    """Cut the power, and boot again, all units included, which takes ``timeout`` s."""
    host.guest.kill()
    host.guest.power_on()
    host.guest.wait_ready()
    state = host.guest.run("systemctl is-system-running --wait", timeout=timeout)
    units = "systemctl --failed; journalctl -b -p warning; journalctl -b -u 'ovirt-*'"
    # A text, because pytest would shorten anything else.
    assert state.stdout.strip() == "running", host.guest.run(units).stdout


def planned(host: ChangedHost) -> str:
    """Plan until systemctl answers in its 5 s: an emulated host needs 3 s of CPU."""
    for _ in range(5):
        said = host.must("plan", "--exit-code")
        if "no answer within" not in said:
            break
    return said


def test_in_the_middle(host: ChangedHost, before: list[str]) -> None:
    """The profile has the mode, the kernel does not yet: it gets it at boot."""
    stopped = host.start_signalled("done 4 STOP", "apply")
    host.wait_until_stopped()
    look = host.look()
    assert any(line.endswith(" transport-mode=connected") for line in look)
    power_cut(host)
    assert stopped.ended
    unit = host.said("journalctl -b -o cat -u ovirt-rdma-recover")
    assert "was interrupted; all is as before" in unit
    assert host.look() == before
    assert (host.newest()[1], host.held()) == ("rolled back", [])


def test_after_the_end(host: ChangedHost, before: list[str]) -> None:
    host.must("apply")
    applied = host.look()
    assert {"ib0 mode connected", "ib0 mtu 65520"} <= set(applied)
    power_cut(host)
    assert host.look() == applied
    assert planned(host).startswith("Nothing to change on hypervisor")
    host.must("revert")
    assert host.look() == before
