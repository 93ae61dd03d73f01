# SPDX-License-Identifier: GPL-2.0-or-later
"""Check, prepare and revert a host with InfiniBand.

``make demo-infiniband`` shows this, and docs/session.md is a record of it
(lab/record_session.py). One guest contains two hosts (lab/ib_pair.py), with systemd,
NetworkManager and the package installed. Its HCAs identify themselves as ConnectX of
revision a0, and their driver leaves TSO on, as drivers without knowledge of that
revision did.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from lab import installed_host
from lab.guest import Guest
from lab.ib_pair import IbPair, ib_pair
from lab.story import MARGIN, Story, expect, say

PLACE = "/mnt"

POLICY = """\
version: 1
host:
  interfaces:
    - name: storage
      match: {link_layer: infiniband, port: 1}
      transport_mode: auto
      mtu: auto
      tso: auto
  modules: [ib_ipoib]
"""

# Settings that people copy from old how-tos; none of them has an effect today.
_LEFT_BEHIND = r"""
mkdir -p /etc/ovirt-rdma
echo 'options mlx4_core log_num_mtt=24 set_4k_mtu=1' > /etc/modprobe.d/mlx4.conf
echo 'SUBSYSTEM=="net", KERNEL=="ib*", ATTR{mode}="connected"' \
    > /etc/udev/rules.d/70-ipoib.rules
ip link set ib0 mtu 2044
"""
_TIDY_UP = "rm /etc/modprobe.d/mlx4.conf /etc/udev/rules.d/70-ipoib.rules"
_SUMMARY = "facts | grep -A 2 -E '^(adapters|RDMA devices|RDMA ports|IPoIB)'"
# What the kernel and NetworkManager show about the values of the plan.
_STATE = (
    "grep . /sys/class/net/ib0/mode /sys/class/net/ib0/mtu",
    "ethtool -k ib0 | grep tx-tcp-segmentation",
    "nmcli -f infiniband.transport-mode connection show ib0",
    "ls /etc/modules-load.d",
)
# Writes as a virtual machine would; ends when a write fails.
_WRITES = f"""
while dd if=/dev/zero of={PLACE}/vm.img bs=64k count=16 oflag=direct 2>/dev/null
do sleep 0.1; done
"""
_CONFIRM_S = 300
STEPS = ("MODULE-02/boot", "IPOIB-TSO-01/ib0", "IPOIB-MODE-01/ib0")


@contextmanager
def host_pair(guest: Guest) -> Iterator[IbPair]:
    """Boot ``guest``, made by :func:`new_guest`, with our package, and a server."""
    with ib_pair(guest=guest, network_manager=True) as pair:
        installed_host.install(guest)
        # systemd is slow to answer while it still starts. Failed units do not matter.
        guest.run(["systemctl", "is-system-running", "--wait"])
        yield pair


def new_guest() -> Guest:
    """Return the hypervisor, powered off."""
    return Guest("hypervisor", systemd=True)


def look_and_plan(story: Story) -> list[str]:
    """Show what is wrong and what would fix it; return the state of the host."""
    story.chapter("InfiniBand: a host with the settings of years of how-tos.")
    story.guest.run(_LEFT_BEHIND, check=True)
    story.shell("cat /etc/modprobe.d/mlx4.conf /etc/udev/rules.d/70-ipoib.rules")
    seen = story.shell(f"ovirt-rdma-host {_SUMMARY} --no-group-separator")
    expect("15b3:634a rev a0" in seen, "the facts have the adapter and its revision")

    story.chapter("Which settings are good, which are wrong, and how to fix them.")
    checked = story.command("check", expected=3)
    for rule in ("IPOIB-TSO-01", "MODOPT-01", "IPOIB-MODE-02", "MODULE-01"):
        expect(_found(checked, rule), f"check finds something for {rule}")

    story.chapter("A small policy, and its plan. Nothing is changed yet.")
    story.guest.run("cat > /etc/ovirt-rdma/policy.yaml", input=POLICY, check=True)
    say(textwrap.indent(POLICY, MARGIN).rstrip())
    story.command("policy load")
    planned = story.command("plan --diff")
    for step in STEPS:
        expect(f"{step}  " in planned, f"the plan has {step}")
    return _state(story)


def refuse(story: Story, pair: IbPair) -> None:
    """Show that a step which would disrupt a mount in use is refused."""
    story.chapter("Storage is in use over ib0: disruptive steps are refused.")
    story.shell(f"mount -t nfs -o vers=4.2,proto=rdma,port=20049 {pair.export} {PLACE}")
    writing = story.guest.start(_WRITES)
    output = story.command("apply", expected=4)
    expect(PLACE in output, "the refusal names the mount")
    expect("mode:datagram" in _state(story)[0], "nothing was changed")
    expect(not writing.ended, "writing to the mount continues")
    writing.signal()
    writing.wait()
    say("   The host goes into maintenance: its virtual machines and mounts leave it.")
    story.shell(f"umount {PLACE}")


def apply_and_confirm(story: Story) -> None:
    """Show that the plan is applied, verified and confirmed."""
    story.chapter("Applied and verified. Without confirm it would be rolled back.")
    applied = story.command(f"apply --confirm-timeout {_CONFIRM_S}")
    for step in STEPS:
        done = re.search(rf"^done +{step} ", applied, re.MULTILINE)
        expect(done is not None, f"apply has done {step}")
    story.shell("systemctl list-units --type=timer --no-legend 'ovirt-rdma-*'")
    story.command("confirm")
    now = "".join(story.shell(line) for line in _STATE)
    for seen in ("mode:connected", "mtu:65520", "tx-tcp-segmentation: off"):
        expect(seen in now, f"the kernel says {seen}")
    story.command("status")
    story.command("apply")
    say("   Files of others are unchanged; the admin removes them:")
    story.shell(_TIDY_UP)
    left = story.command("check")
    # A tool that was too slow to answer is a warning.
    well = re.search(
        r"^(\d+ checks? passed|None of \d+ checks failed) on ", left, re.MULTILINE
    )
    expect(well is not None, "no check fails any more")


def revert(story: Story, before: list[str]) -> None:
    """Show that a revert restores the state ``before``."""
    story.chapter("The history of the changes, and their revert.")
    story.command("history -v")
    story.command("revert")
    expect(_state(story) == before, "the state is the same as before apply")
    say("   The kernel and NetworkManager show the same values as before apply.")


def _state(story: Story) -> list[str]:
    return [story.guest.run(line, check=True).stdout for line in _STATE]


def _found(checked: str, rule: str) -> bool:
    return re.search(rf"^(FAIL|WARN)\s+{rule}\s", checked, re.MULTILINE) is not None
