# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the story of ``make demo-infiniband``.

A host that is not prepared is checked, planned and changed (lab/demo_host.py), an
export is mounted over RDMA and over TCP/IPoIB, and the host is reverted.
"""

from __future__ import annotations

from lab import demo_host
from lab.demo_host import PLACE
from lab.ib_pair import IbPair
from lab.story import Story, expect, say, speed

MEGABYTES = 64
TURNS = 2

_MOUNTS = {"rdma": "proto=rdma,port=20049", "tcp": "proto=tcp"}


def tell(story: Story, pair: IbPair) -> None:
    """Show the whole story, on a pair that is up (lab/demo_host.py)."""
    before = demo_host.look_and_plan(story)
    demo_host.refuse(story, pair)
    demo_host.apply_and_confirm(story)

    story.chapter("An export over RDMA, and over TCP on IPoIB, with a measurement.")
    # The server's mode is not ours to set, but a connection needs both in that mode.
    connected = f"echo connected > /sys/class/net/{pair.server_netdev}/mode"
    pair.server.run(connected, check=True)
    _compare(story, pair)

    demo_host.revert(story, before)


def _compare(story: Story, pair: IbPair) -> None:
    """Measure both in turns, so that other load slows both down.

    They are never mounted at the same time: with NFS 4 the kernel recognizes the server
    and uses the first mount's connection for the second.
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
    say("   fabric is memory: the ratio only shows the CPU time per byte)")
    expect(max(reads["rdma"]) > max(reads["tcp"]), "reads are faster over RDMA")


def _speed(story: Story, operands: str) -> float:
    files = operands.format(f"{PLACE}/disk.img")
    return speed(story.shell(f"dd {files} bs=1M count={MEGABYTES} 2>&1 | tail -n 1"))
