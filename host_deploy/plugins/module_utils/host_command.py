# SPDX-License-Identifier: GPL-2.0-or-later
"""Run our command for a module, and turn its errors into one sentence."""

from __future__ import annotations

import json
import re
import time

# The oldest version of the command that has all that the modules use.
OLDEST = "0.2.0"

# Exit code of a run that found another one at work.
_LOCKED = 75
_LOCK_WAIT_S = 3
# A task's failure is an event of the engine; longer texts are for the host's own log.
_LONGEST = 900
# Where Ansible's PATH may not point: /usr/sbin is not on that of every login.
_FOLDERS = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin"]


def one_line(text):
    """Return text as one printable line that the engine's parser reads as intended.

    The engine takes ``[ERROR]`` within a task's name for its severity. Many people may
    read its events, so passwords in URLs, as of repositories, are left out.
    """
    line = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text).split())
    line = re.sub(r"(?<=://)[^\s/]*@", "***@", line)
    line = re.sub(r"\[(NORMAL|WARNING|ERROR|ALERT)\]", r"(\1)", line)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 4] + " ..."


def sentence(what, fix=""):
    """Return ``what; fix: FIX`` on one line."""
    what = what.rstrip(". ")
    return one_line(f"{what}; fix: {fix}" if fix else what)


def advice(one):
    """Return the sentence of an entry that has ``sentence`` or ``why``, and ``fix``."""
    subject = one.get("step", "")
    what = one.get("sentence") or one.get("why") or ""
    return sentence(f"{subject}: {what}" if subject else what, one.get("fix", ""))


def version_of(text):
    """Return ``0.2.0`` as (0, 2, 0); what is no number counts as 0."""
    parts = re.findall(r"\d+", text)
    return tuple(int(part) for part in [*parts, "0", "0", "0"][:3])


class Failed(Exception):
    """Ends the module: one sentence with a fix, a stable id, and return values."""

    def __init__(self, what, fix="", id="", **more):
        super().__init__(what)
        self.what, self.fix, self.id, self.more = what, fix, id, more


def carry_out(module, work):
    """End the module with the result of ``work(module)``, or with what failed there."""
    try:
        result = work(module)
    except Failed as failed:
        module.fail_json(
            msg=sentence(failed.what, failed.fix), id=failed.id, **failed.more
        )
    else:
        result["attention"] = [one_line(text) for text in result.get("attention", [])]
        module.exit_json(**result)


class HostCommand:
    """The command ovirt-rdma-host on this host."""

    program = package = "ovirt-rdma-host"

    def __init__(self, module, lock_timeout=60, limit_s=0):
        """Find the command; raise Failed if it is missing.

        ``lock_timeout``: for how many seconds to wait for another run that is changing
        the host. ``limit_s``: how long the command may take; 0 for no limit.
        """
        self._module = module
        self._environment = {}
        self._lock_timeout, self._limit_s = lock_timeout, limit_s
        self._path = self.find(module)
        if self._path is None:
            raise Failed(
                f"the command {self.program} is missing",
                f"install the package {self.package} on the host",
                "command-missing",
            )

    @classmethod
    def find(cls, module):
        """Return the path of the command, or None."""
        return module.get_bin_path(cls.program, opt_dirs=_FOLDERS)

    def version(self):
        """Return the version of the command; raise Failed if it is too old."""
        code, out, err = self._module.run_command([self._path, "--version"])
        found = re.match(r"\S+ (\d+\.\d+\S*)", out)
        if code != 0 or not found:
            raise self._unusable("--version", code, out, err)
        version = found.group(1)
        if version_of(version) < version_of(OLDEST):
            raise Failed(
                f"{self.program} {version} on this host is older than {OLDEST}, which "
                "this collection needs",
                f"update the package {self.package} on the host",
                "command-too-old",
                version=version,
            )
        return version

    def run(self, *words, also=(), names=()):
        """Run a verb with ``-o json``; return its exit code and its document.

        ``names`` are arguments that others chose: none is taken for an option.
        ``also``: exit codes besides 0 whose documents are results. After any other,
        raises Failed with the sentences and the fix of the command.
        """
        deadline = time.time() + self._lock_timeout
        while True:
            start = time.time()
            argv = ["timeout", "-k", "5", str(self._limit_s)] if self._limit_s else []
            argv += [self._path, *words, "-o", "json"]
            argv += ["--", *names] if names else []
            code, out, err = self._module.run_command(
                argv, environ_update=self._environment, expand_user_and_vars=False
            )
            if code != _LOCKED or time.time() + _LOCK_WAIT_S > deadline:
                break
            time.sleep(_LOCK_WAIT_S)
        # timeout(1) has ended it, or was killed with it.
        if code and 0 < self._limit_s <= time.time() - start:
            raise Failed(
                f"{self.program} {words[0]} did not end in {self._limit_s} seconds",
                f"run it on the host: {self.program} {words[0]}",
                "command-timeout",
            )
        try:
            document = json.loads(out)
            kind = document["kind"]
        except (ValueError, TypeError, KeyError):
            raise self._unusable(words[0], code, out, err) from None
        if kind == "error":
            what = "; ".join(document["sentences"])
            raise Failed(what, document["fix"], document["id"], exit_code=code)
        if code != 0 and code not in also:
            what = document.get("sentence", f"{words[0]} ended with exit code {code}")
            left = [advice(one) for one in document.get("left", [])]
            raise Failed(": ".join([what, *left[:1]]), exit_code=code, left=left)
        return code, document

    def _unusable(self, verb, code, out, err):
        """Return Failed for a command that did not print what was asked for."""
        lines = [line for line in (err.strip() or out.strip()).splitlines() if line]
        # argparse prints the usage first, and the reason last.
        reason = lines[-1] if lines else "it printed nothing"
        fix = f"run it on the host: {self.program} {verb}"
        if code == 2:  # it does not know the verb or an option
            fix = f"update the package {self.package} on the host"
        return Failed(
            f"{self.program} {verb} failed with exit code {code}: {reason}",
            fix,
            "command-failed",
            exit_code=code,
        )
