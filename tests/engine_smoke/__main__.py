# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json
import os
import sys

from engine_smoke.clean_up import Left
from engine_smoke.run import Outcome, remove_what_is_left, smoke
from engine_smoke.site import NotAllowed, OtherRun, Skipped, from_environment
from ovirt_rdma.host.errors import Problem

INTERRUPTED = 130


def main() -> int:
    """Run it; print one JSON line per act. 0: success, 1: failed, 2: not started.

    With the argument ``clean-up``, only remove what an earlier run left.
    """

    def tell(one: Outcome) -> None:
        print(json.dumps(vars(one)), flush=True)

    try:
        wishes = from_environment(os.environ)
        if sys.argv[1:] == ["clean-up"]:
            remove_what_is_left(wishes)
            return 0
        return 0 if smoke(wishes, tell) else 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except (NotAllowed, OtherRun, Left, Skipped, Problem) as problem:
        print(problem, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
