# SPDX-License-Identifier: GPL-2.0-or-later
"""The second story of ``make demo``: InfiniBand. A host that nobody has prepared is
checked and planned for, and an export is mounted over RDMA and over TCP/IPoIB.

One guest with two hosts in it (lab/ib_pair.py). Its HCAs say that they are ConnectX of
revision a0, and their driver leaves TSO on, as drivers did that do not know the card.
"""

from __future__ import annotations

import re
import textwrap

from lab.ib_pair import IbPair
from lab.problem import LabProblem
from lab.story import MARGIN, Story, expect, say

MEGABYTES = 64
TURNS = 2
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

# What people write by hand, as they find it told: none of it does anything today.
_LEFT_BEHIND = r"""
mkdir -p /etc/ovirt-rdma
echo 'options mlx4_core log_num_mtt=24 set_4k_mtu=1' > /etc/modprobe.d/mlx4.conf
echo 'SUBSYSTEM=="net", KERNEL=="ib*", ATTR{mode}="connected"' \
    > /etc/udev/rules.d/70-ipoib.rules
ip link set ib0 mtu 2044
"""
_TIDY_UP = "rm /etc/modprobe.d/mlx4.conf /etc/udev/rules.d/70-ipoib.rules"
# The steps of the plan.
_BY_HAND = (
    "ethtool -K ib0 tx-tcp-segmentation off",
    "echo connected > /sys/class/net/ib0/mode",
    "echo ib_ipoib > /etc/modules-load.d/ib_ipoib.conf",
)
_SUMMARY = "facts | grep -A 2 -E '^(adapters|RDMA devices|RDMA ports|IPoIB)'"
_MOUNTS = {"rdma": "proto=rdma,port=20049", "tcp": "proto=tcp"}
_COPIED = re.compile(r"^(\d+) bytes .* copied, ([0-9.e-]+) s", re.MULTILINE)


def tell(story: Story, pair: IbPair) -> None:
    """The whole story, over a pair that is up."""
    story.chapter("InfiniBand: a host as years of how-tos have left it.")
    story.guest.run(_LEFT_BEHIND, check=True)
    story.shell("cat /etc/modprobe.d/mlx4.conf /etc/udev/rules.d/70-ipoib.rules")
    seen = story.shell(f"ovirt-rdma-host {_SUMMARY} --no-group-separator")
    expect("15b3:634a rev a0" in seen, "the facts have the card and its revision")

    story.chapter("What is right there, what is wrong, and what mends it?")
    checked = story.command("check", expected=3)
    for rule in ("IPOIB-TSO-01", "MODOPT-01", "IPOIB-MODE-02", "MODULE-01"):
        expect(_found(checked, rule), f"check finds something for {rule}")
    story.command("explain IPOIB-TSO-01")

    story.chapter("A small policy, and what it would change. Nothing is changed yet.")
    story.guest.run("cat > /etc/ovirt-rdma/policy.yaml", input=POLICY, check=True)
    say(textwrap.indent(POLICY, MARGIN).rstrip())
    story.command("policy load")
    planned = story.command("plan --diff")
    for step in ("MODULE-02/boot  live", "IPOIB-MODE-01/ib0  link-down"):
        expect(step in planned, f"the plan has {step}")

    story.chapter("This version has no apply. By hand, as planned: ib_ipoib takes it.")
    for line in (_TIDY_UP, *_BY_HAND):
        story.shell(line)
    mtu = story.shell("cat /sys/class/net/ib0/mtu").strip()
    expect(mtu == "65520", "the kernel has set the MTU of connected mode")
    story.command("plan --exit-code")
    left = story.shell("ovirt-rdma-host check | grep -v -E '^(PASS|SKIP)'")
    expect("None of " in left, "no check fails any more")

    story.chapter("An export over RDMA, and over TCP on IPoIB, which is measured, too.")
    # The server is another administrator's; a connection has the mode of both.
    connected = f"echo connected > /sys/class/net/{pair.server_netdev}/mode"
    pair.server.run(connected, check=True)
    _compare(story, pair)


def _found(checked: str, rule: str) -> bool:
    return re.search(rf"^(FAIL|WARN)\s+{rule}\s", checked, re.MULTILINE) is not None


def _compare(story: Story, pair: IbPair) -> None:
    """Measure in turns, so that what slows one down slows the other, too.

    Never are both mounted: with NFS 4 the kernel sees that the server is the same, and
    gives the second mount the first one's connection.
    """
    writes: dict[str, list[float]] = {transport: [] for transport in _MOUNTS}
    reads: dict[str, list[float]] = {transport: [] for transport in _MOUNTS}
    for turn in range(TURNS):
        for transport, options in _MOUNTS.items():
            story.shell(f"mount -t nfs -o vers=4.2,{options} {pair.export} {PLACE}")
            if not turn:
                story.mounted_over(PLACE, transport)
                listed = story.command("nfs list --verbose")
                expect(f"xprt: {transport}" in listed, "nfs list has the transport")
            writes[transport].append(_speed(story, "if=/dev/zero of={} oflag=direct"))
            reads[transport].append(_speed(story, "if={} of=/dev/null iflag=direct"))
            story.shell(f"umount {PLACE}")
    for name, speeds in (("reads", reads), ("writes", writes)):
        rdma, tcp = max(speeds["rdma"]), max(speeds["tcp"])
        say(
            f"   {name:<7} RDMA {rdma:.0f} MB/s, TCP/IPoIB {tcp:.0f} MB/s:"
            f" {rdma / tcp:.1f} : 1"
        )
    say("   (the better of two; client and server share one emulated CPU, and the")
    say("   fabric is memory: the ratio says what a byte costs the CPU, no more)")
    expect(max(reads["rdma"]) > max(reads["tcp"]), "reads are quicker over RDMA")


def _speed(story: Story, words: str) -> float:
    image = words.format(f"{PLACE}/disk.img")
    return speed(story.shell(f"dd {image} bs=1M count={MEGABYTES} 2>&1 | tail -n 1"))


def speed(told: str) -> float:
    """Return the MB/s (10**6 bytes) that dd tells of: its last line, in English."""
    found = _COPIED.search(told)
    if found is None or not float(found[2]):
        raise LabProblem(f"dd did not say how fast it was: {told.strip()!r}")
    return int(found[1]) / float(found[2]) / 1e6
