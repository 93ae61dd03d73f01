# SPDX-License-Identifier: GPL-2.0-or-later
"""``make demo``: show the main job and InfiniBand on real kernels, step by step.

Two stories, lab/demo_nfs.py and lab/demo_infiniband.py, in three guests that boot at
the same time. Each step is checked, and the exit code is 0 only if all succeed.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from lab import demo_host, demo_infiniband, demo_nfs
from lab.problem import LabProblem
from lab.story import Story, say
from lab.topology import two_guests
from lab.vdsm_daemon import VdsmDaemon


def tell() -> None:
    """Show both stories."""
    started = time.monotonic()
    guest = demo_host.new_guest()
    with ExitStack() as until_the_end, ThreadPoolExecutor(1) as pool:
        booting = pool.submit(until_the_end.enter_context, demo_host.host_pair(guest))
        try:
            with two_guests() as lab:
                lab.nfs.add_export(demo_nfs.PREFERRED)
                vdsmd = VdsmDaemon(lab.hypervisor)
                vdsmd.write_policy(demo_nfs.POLICY)
                say(f"Both are up after {time.monotonic() - started:.0f} s.")
                story = demo_nfs.NfsStory(lab, vdsmd)
                demo_nfs.tell(story, lab)
            # The two guests are off now, so they do not affect the measurements.
            pair = booting.result()
            demo_infiniband.tell(Story(guest, story.chapters), pair)
        finally:
            # Leaving the pool waits for the boot: let it fail at once.
            guest.kill()


def main() -> int:
    """Run the demo; return 0 if all steps succeeded."""
    started = time.monotonic()
    say("Starting three guests under QEMU, emulated: an NFS server and a hypervisor,")
    say("and one with InfiniBand, which comes later ...")
    try:
        tell()
    except LabProblem as problem:
        print(f"\ndemo: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: stopped", file=sys.stderr)
        return 130
    say(f"\nAll steps succeeded, in {time.monotonic() - started:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
