# SPDX-License-Identifier: GPL-2.0-or-later
"""A hypervisor in the lab whose mounts are watched and measured as on a real host.

The watcher is the program of ovirt-rdma-health.service, the exporter that of
ovirt-rdma-metrics.service; Prometheus' own promtool says which alerts the exporter's
samples raise.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import yaml

from lab import steady_load
from lab.command import Process
from lab.prometheus import promtool
from lab.systemd_unit import exec_start
from lab.topology import Topology
from tools.metrics_reference import RULES, TOP

Look = dict[str, Any]
"""What the watcher found of the mount, and ``taken_at`` on the guest's clock."""

EXPORT_PATH = "/srv/watched"
OTHER_PATH = "/srv/other"
# As VDSM mounts.
OPTIONS = "soft,nosharecache,timeo=100,retrans=3"
INTERVAL_S = 5
# Between two runs of the exporter. The rules want two scrapes of 15 s.
SAMPLE_S = 5
METRICS = "/run/metrics"
_JOURNAL = "/run/health.journal"
_PATIENT_S = 400.0
# The guests see the machine's files.
_BIN = Path(sys.executable).parent
_TIMES = "_timestamp_seconds"
# Without a journal, which would make several writes of each.
_MAKE_DISK = f"""
modprobe brd rd_nr=1 rd_size=98304
modprobe -a dm-delay ext4
dmsetup create slow --table "0 $(blockdev --getsz /dev/ram0) delay /dev/ram0 0 0"
dmsetup mknodes
mkfs.ext4 -q -O ^has_journal /dev/mapper/slow
mount /dev/mapper/slow /nfsroot{EXPORT_PATH}
chown 36:36 /nfsroot{EXPORT_PATH}
exportfs -ra
"""
_RUN = f"ovirt_rdma_exporter_last_run{_TIMES}"
_EXPORTER = TOP / "storage/metrics/ovirt-rdma-metrics"


@dataclass(frozen=True)
class Load:
    """Threads that read and write ``block`` bytes at a time (lab/steady_load.py)."""

    readers: int
    writers: int
    block: int = 64 << 10
    pause_s: float = 0.0


@dataclass
class Recorded:
    """The samples of the exporter, by their times in seconds on the guest's clock."""

    samples: list[tuple[float, dict[str, str]]] = field(default_factory=list)

    def lasting_s(self, state: str) -> float:
        """Return for how many seconds each sample up to the last has shown a mount in
        ``state``.
        """
        since = end = self.samples[-1][0]
        for at, shown in reversed(self.samples):
            if not any(
                _is_health(name, state) and float(shown[name]) for name in shown
            ):
                break
            since = at
        return end - since

    def series(self, step_s: int) -> list[dict[str, str]]:
        """Return them as input series of promtool, one value every ``step_s``."""
        begin = self.samples[0][0]
        steps = int((self.samples[-1][0] - begin) / step_s) + 1
        values: dict[str, list[str]] = {}
        for step in range(steps):
            until = begin + (step + 1) * step_s
            shown = [one for at, one in self.samples if at < until][-1]
            for name, value in shown.items():
                # promtool's clock begins at 0.
                own = str(float(value) - begin) if _TIMES in name else value
                values.setdefault(name, ["_"] * step).append(own)
            for one in values.values():
                one.extend(["_"] * (step + 1 - len(one)))
        return [
            {"series": _labelled(name), "values": " ".join(one)}
            for name, one in values.items()
        ]


def _is_health(name: str, state: str) -> bool:
    return name.startswith("ovirt_rdma_mount_health{") and f'state="{state}"' in name


def _labelled(name: str) -> str:
    bare, _, rest = name.partition("{")
    inside = ",".join(['instance="hv1"', 'job="node"', *filter(None, [rest[:-1]])])
    return f"{bare}{{{inside}}}"


class WatchedHost:
    """The hypervisor of ``lab``, with a policy, the watcher, and a mount at a time."""

    def __init__(self, lab: Topology) -> None:
        self.lab = lab
        self.export = f"{lab.address}:{EXPORT_PATH}"
        self.place = _place(self.export)
        self._watcher: Optional[Process] = None
        self._load: Optional[Process] = None
        self.export_all()

    def export_all(self) -> None:
        """Export EXPORT_PATH from a disk whose speed can be chosen, and OTHER_PATH."""
        for path in (EXPORT_PATH, OTHER_PATH):
            self.lab.nfs.add_export(path)
        self.server(_MAKE_DISK)

    def server(self, line: str) -> None:
        """Run a line on the server."""
        self.lab.server.run(f"set -e\n{line}", check=True, timeout=_PATIENT_S)

    def delay_disk(self, milliseconds: int) -> None:
        """Let each read and write of the server's disk take so long."""
        table = f"0 $(blockdev --getsz /dev/ram0) delay /dev/ram0 0 {milliseconds}"
        self.server(f'dmsetup reload slow --table "{table}"; dmsetup resume slow')

    def threads(self, number: int) -> None:
        """Let the server have so many NFS threads."""
        self.server(f"echo {number} > /proc/fs/nfsd/threads")

    def shell(self, line: str) -> str:
        """Run a line in the hypervisor; return what it prints."""
        return self.lab.hypervisor.run(line, check=True, timeout=_PATIENT_S).stdout

    def clock_s(self) -> float:
        """Return the hypervisor's clock: seconds since 1970."""
        return float(self.shell("date +%s.%N"))

    def load_policy(self, text: str) -> None:
        """Load the policy ``text``."""
        self.shell(f"mkdir -p {METRICS}; rm -f {METRICS}/*")
        self.lab.hypervisor.run("cat > /run/policy.yaml", input=text, check=True)
        self.shell(f"{_BIN}/ovirt-rdma-host policy load /run/policy.yaml")

    def watch(self) -> None:
        """Start the program of the unit, and wait for its first look."""
        unit = (TOP / "host/systemd/ovirt-rdma-health.service").read_text()
        words = " ".join(exec_start([unit])[1:])
        self._watcher = self.lab.hypervisor.start(
            f"exec {_BIN}/ovirt-rdma-host {words} > {_JOURNAL} 2>&1"
        )
        self.shell("until [ -e /run/ovirt-rdma/health.json ]; do sleep 0.5; done")

    def mount(self, options: str, version: str, path: str = EXPORT_PATH) -> None:
        """Mount an export of the server as VDSM does."""
        export = f"{self.lab.address}:{path}"
        place = _place(export)
        self.shell(
            f"mkdir -p {place} && mount -t nfs -o vers={version},{OPTIONS},{options} "
            f"{export} {place}"
        )

    def begin_load(self, load: Load) -> None:
        """Start threads that read and write, and wait until each has."""
        folder = f"{self.place}/load"
        self.shell(f"rm -rf {folder}; mkdir {folder}")
        words = (folder, load.readers, load.writers, load.block, load.pause_s)
        program = Path(steady_load.__file__)
        self._load = self.lab.hypervisor.start(
            ["/usr/bin/python3", str(program), *map(str, words)]
        )
        self.shell(f"until [ -e {folder}/started ]; do sleep 0.2; done")

    def end(self) -> None:
        """End the load, and unmount all."""
        self.end_load()
        self.end_mounts()

    def end_load(self) -> None:
        """End the load, if there is one."""
        if self._load is not None:
            self._load.signal(9)
        self._load = None

    def end_mounts(self) -> None:
        """Unmount all; what is in use stays without a name."""
        self.shell("umount -a -t nfs,nfs4 -f -l")

    def journal(self, since: int = 0) -> str:
        """Return what the watcher has written to the journal, from a character on."""
        return self.shell(f"cat {_JOURNAL}")[since:]

    def wait_until_seen(self) -> None:
        """Wait for a look of the watcher at the mount as it is now."""
        mounted = self.clock_s()
        seen: set[float] = set()
        # One may have begun before.
        while len(seen) < 2:
            time.sleep(1.0)
            taken, found = self.health()
            if found and taken >= mounted:
                seen.add(taken)

    def health(self) -> tuple[float, dict[str, Any]]:
        """Return when the watcher last looked, on the guest's clock, and what it found
        of the mount.
        """
        state = json.loads(self.shell("cat /run/ovirt-rdma/health.json"))
        found = {one["export"]: one for one in state["mounts"]}
        return state["taken_at"], found.get(self.export, {})

    def sample(self, recorded: Recorded) -> None:
        """Run the exporter, and record what node_exporter would show."""
        text = self.shell(
            f"{_BIN}/python -IS {_EXPORTER} && cat {METRICS}/ovirt_rdma.prom"
        )
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        shown = {name: value for name, _, value in (x.rpartition(" ") for x in lines)}
        recorded.samples.append((float(shown[_RUN]), shown))

    def record(
        self, recorded: Recorded, enough: Callable[[list[Look]], bool]
    ) -> list[Look]:
        """Record samples until there is ``enough`` to see in the looks of the watcher,
        which are returned, each once.
        """
        looks: dict[float, Look] = {}
        end = time.monotonic() + _PATIENT_S
        while time.monotonic() < end:
            again = time.monotonic() + SAMPLE_S
            # The look comes first, so that the sample shows it or a later one.
            taken, found = self.health()
            if found:
                looks[taken] = {**found, "taken_at": taken}
            self.sample(recorded)
            # Also the last time: promtool has one sample for each SAMPLE_S.
            time.sleep(max(0.0, again - time.monotonic()))
            if enough(list(looks.values())):
                break
        return list(looks.values())


def told(looks: Iterable[Look]) -> str:
    """Return a line for each look."""
    lines = [
        f"{one['taken_at']:.0f} {one['state']} {one['cause']} {one['reason']}"
        f" {one['evidence']} {[remark['id'] for remark in one['remarks']]}"
        for one in looks
    ]
    return "\n".join(["the looks:", *lines])


def _place(export: str) -> str:
    return f"/rhev/data-center/mnt/{export.replace('/', '_')}"


def firing(
    recorded: Recorded,
    expected: dict[float, set[str]],
    folder: Path,
    others: Iterable[str] = (),
) -> None:
    """Let promtool test which alerts fire at the times on the guest's clock; ``others``
    may.
    """
    begin = recorded.samples[0][0]
    chosen = f'alertstate="firing",alertname!~"{"|".join(others)}"'
    checks = [
        {
            "expr": f"group by (alertname) (ALERTS{{{chosen}}})",
            "eval_time": f"{int((at - begin) / SAMPLE_S) * SAMPLE_S}s",
            "exp_samples": [
                {"labels": f'{{alertname="{name}"}}', "value": 1} for name in names
            ],
        }
        for at, names in expected.items()
    ]
    test = {
        "interval": f"{SAMPLE_S}s",
        "input_series": recorded.series(SAMPLE_S),
        "promql_expr_test": checks,
    }
    path = folder / "recorded.yml"
    path.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(RULES)],
                "evaluation_interval": f"{SAMPLE_S}s",
                "tests": [test],
            }
        )
    )
    done = promtool("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
