# SPDX-License-Identifier: GPL-2.0-or-later
"""systemd's transient timers on a fake host, which ``systemd-run --on-active`` makes
and ``systemctl stop`` removes. Strict: other arguments fail the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ovirt_rdma.host.system.commands import CommandFailed


@dataclass
class Timers:
    """``timers`` are the seconds and the command of each, by its unit; ``fails`` is
    systemd's error message if it does not accept a timer.
    """

    timers: dict[str, tuple[str, str]] = field(default_factory=dict)
    fails: str = ""

    def systemd_run(self, argv: Sequence[str]) -> str:
        """Run ``systemd-run``."""
        if self.fails:
            raise CommandFailed(self.fails, 1)
        options, _, command = " ".join(argv[1:]).partition(" -- ")
        words = dict(word.partition("=")[::2] for word in options.split())
        assert words["--timer-property"] == "AccuracySec=1s"
        if words["--unit"] in self.timers:
            raise CommandFailed("Unit was already loaded or has a fragment file.", 1)
        self.timers[words["--unit"]] = (words["--on-active"], command)
        return ""

    def stop(self, argv: Sequence[str]) -> str:
        """Run ``systemctl stop``."""
        if self.fails:
            raise CommandFailed(self.fails, 1)
        verb, timer, service = argv[1:]
        name, _, kind = timer.rpartition(".")
        assert (verb, kind, service) == ("stop", "timer", f"{name}.service")
        if name not in self.timers:
            raise CommandFailed(f"Failed to stop {timer}: Unit {timer} not loaded.", 5)
        del self.timers[name]
        return ""
