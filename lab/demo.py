# SPDX-License-Identifier: GPL-2.0-or-later
"""``make demo`` and ``make demo-infiniband``: two stories on real kernels.

``python -m lab.demo [nfs|infiniband]``: the main job (lab/demo_nfs.py, the default), in
two guests; and a host with InfiniBand, prepared and reverted (lab/demo_infiniband.py).
Each step is checked, and the exit code is 0 only if all succeed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from lab import demo_host, demo_infiniband, demo_nfs
from lab.problem import LabProblem
from lab.story import Story, say
from lab.topology import two_guests
from lab.vdsm_daemon import VdsmDaemon


def nfs() -> None:
    """Show how VDSM mounts exports over RDMA, and what happens without RDMA."""
    started = time.monotonic()
    say("Starting two guests under QEMU, emulated: an NFS server and a hypervisor ...")
    with two_guests() as lab:
        lab.nfs.add_export(demo_nfs.PREFERRED)
        vdsmd = VdsmDaemon(lab.hypervisor)
        vdsmd.write_policy(demo_nfs.POLICY)
        story = demo_nfs.NfsStory(lab, vdsmd, started)
        kernel = lab.hypervisor.run("uname -r", check=True).stdout.strip()
        seconds = time.monotonic() - started
        say(f"Both are up after {seconds:.0f} s, with Linux {kernel}.")
        say(demo_nfs.tell(story, lab).table())
    say("\nWith InfiniBand, and a host that is prepared: make demo-infiniband")


def infiniband() -> None:
    """Show a host that is checked, prepared, measured and reverted."""
    say(
        "Starting a guest under QEMU, emulated: a host with InfiniBand, and systemd ..."
    )
    guest = demo_host.new_guest()
    with demo_host.host_pair(guest) as pair:
        demo_infiniband.tell(Story(guest), pair)


STORIES: dict[str, Callable[[], None]] = {"nfs": nfs, "infiniband": infiniband}


def main(words: list[str]) -> int:
    """Show the story that the first word names; return 0 if all steps succeeded."""
    started = time.monotonic()
    try:
        STORIES[words[0] if words else "nfs"]()
    except LabProblem as problem:
        print(f"\ndemo: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: stopped", file=sys.stderr)
        return 130
    say(f"All steps succeeded, in {time.monotonic() - started:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
