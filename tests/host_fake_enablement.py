# SPDX-License-Identifier: GPL-2.0-or-later
"""A fake host on which modes are turned on and off: a root folder and its tools."""

from __future__ import annotations

import re
from pathlib import Path

from ovirt_rdma.host import read_fapolicyd
from ovirt_rdma.host.commands import CommandFailed
from ovirt_rdma.host.enablement import disable, enable
from ovirt_rdma.host.paths import (
    DROPIN_DIRECTORY,
    DROPIN_SOURCE,
    ENABLED,
    LAUNCHER,
    POLICY_JSON,
    RUN_LOCK,
    under,
)
from ovirt_rdma.host.policy import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.policy_store import store

RELOAD = ("systemctl", "daemon-reload")
RESTART = ("systemctl", "try-restart", "vdsmd.service")
CAPS = ("systemctl", "start", "--no-block", "ovirt-rdma-caps.service")
KERNEL = "6.12.0-55.el10.x86_64"


def rdma_rule(number=1, path="/vm", server="10.0.0.1", **more):
    return NfsRule(number, f"rule {number}", server, path, "require-rdma", **more)


def policy_of(*rules):
    return Policy(nfs=NfsPolicy(rules))


class Host:
    """A fake root with the package installed, a strict systemctl, an nfsconf and a
    fapolicyd.

    ``sections_clash``: nfsconf has the fault of nfs-utils up to 2.8.2. ``fapolicyd`` is
    its state, or ``mute`` where its command fails, and ``trusted`` what it trusts.
    """

    def __init__(self, root):
        self.root = root
        self.commands = []
        self.sections_clash = False
        self.fapolicyd = "active"
        self.trusted = []
        for path in (LAUNCHER, DROPIN_SOURCE):
            self.write(path, "packaged\n")
        self.write("/proc/sys/kernel/osrelease", f"{KERNEL}\n")
        under(root, ENABLED).parent.mkdir(parents=True)
        under(root, DROPIN_DIRECTORY).parent.mkdir(parents=True)

    def load(self, *rules):
        store(policy_of(*rules), "p.yaml", under(self.root, POLICY_JSON))

    def write(self, path, text):
        path = under(self.root, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def link(self, path, target):
        path = under(self.root, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def remove(self, path):
        under(self.root, path).unlink()

    def run(self, argv):
        if argv[0] == "nfsconf":
            return self.nfsconf(*argv[1:])
        if tuple(argv) == read_fapolicyd.ACTIVE:
            return "inactive\n" if self.fapolicyd == "inactive" else "active\n"
        if tuple(argv) == read_fapolicyd.DUMP:
            if self.fapolicyd == "mute":
                raise CommandFailed("mdb_env_open failed", 4)
            digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
            found = ["/usr/share/a b", *self.trusted]
            return "".join(f"rpmdb {path} 512 {digest}\n" for path in found)
        assert tuple(argv) in {RELOAD, RESTART, CAPS}
        self.commands.append(tuple(argv))
        return ""

    def nfsconf(self, file_word, file, dump_word):
        assert (file_word, dump_word) == ("--file", "--dump")
        return nfsconf_dump(Path(file), self.sections_clash)

    def enable(self, mode="vdsmd", **options):
        return enable(self.root, mode=mode, run=self.run, **options)

    def disable(self, **options):
        return disable(self.root, run=self.run, **options)

    def process(self, pid, *argv):
        self.write(f"/proc/{pid}/cmdline", "\0".join(argv) + "\0")

    def tree(self):
        """Everything below the root but the run lock: what is where, with content."""
        return {
            str(path.relative_to(self.root)): (
                ("link", str(path.readlink()))
                if path.is_symlink()
                else ("folder",)
                if path.is_dir()
                else ("file", path.read_bytes(), path.stat().st_mode)
            )
            for path in sorted(self.root.rglob("*"))
            if path not in _up_to(under(self.root, RUN_LOCK), self.root)
        }


def _up_to(path, root):
    return {path, *path.parents} - {root, *root.parents}


def nfsconf_dump(conf, sections_clash=False):
    """What nfsconf(8) prints of ``conf`` and ``conf``.d (seen with 2.6.2)."""
    if not conf.exists():
        raise CommandFailed(f"Error loading config file {conf}", 1)
    found = {}
    for path in (conf, *sorted(Path(f"{conf}.d").glob("*.conf"))):
        section = None
        for line in path.read_text().splitlines():
            header = re.match(r'\[ *(\w+) *(?:"(.*)")? *\]', line)
            if header:
                section = (header[1].lower(), header[2])
            elif section and "=" in line and not line.startswith("#"):
                key, _, value = (part.strip() for part in line.partition("="))
                quoted = re.fullmatch(r"(['\"])(.*)\1", value)
                if sections_clash:
                    for other in [s for s in found if s[0] == section[0]]:
                        found[other].pop(key, None)
                found.setdefault(section, {})[key] = quoted[2] if quoted else value
    lines = []
    for (kind, name), values in sorted(found.items(), key=repr):
        if values:
            lines.append(f'[{kind} "{name}"]' if name else f"[{kind}]")
            lines += [f" {key} = {value}" for key, value in sorted(values.items())]
    return "\n".join(lines) + "\n"
