# SPDX-License-Identifier: GPL-2.0-or-later
"""Moves a domain to RDMA, host by host, while virtual machines run.

Run it again to resume a conversion that was interrupted or has stopped.
"""

import sys

from ovirt_rdma.engine_sdk_tools.automation import connect

(name,) = sys.argv[1:]


def show(plan):
    """Print what will be done, and continue. Returning False would change nothing."""
    for step in plan.steps:
        print(step.doing)
    return True


# The address and the credentials come from the environment; hosts are asked over SSH
# with the engine's own key.
with connect() as rdma:
    # Raises Refused or ChecksFailed, which list every problem, and OtherRun while
    # another run changes the data center.
    state = rdma.convert(name, approve=show)

print(state.stage + (f": {state.why}" if state.why else ""))
sys.exit(0 if state.stage == "converted" else 1)
