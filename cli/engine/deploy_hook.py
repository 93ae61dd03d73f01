# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``deploy-hook install``, ``remove`` and ``status``.

They work on the engine machine, on the file of tasks that the engine includes at the
end of each installation of a host.
"""

from __future__ import annotations

import difflib
import shlex
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.cli.parser import Context, Parser, Verb, file_name
from ovirt_rdma.engine_sdk_tools.hosts import deploy_hook
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import collection_folder, is_folder
from ovirt_rdma.engine_sdk_tools.hosts.deploy_hook import (
    POST_TASKS,
    PostTasksFile,
    PostTasksProblem,
    collection_name,
)
from ovirt_rdma.host.errors import ExitCode, Problem
from ovirt_rdma.host.paths import POLICY_YAML

_COLORS = {"OK": "good", "FAIL": "bad"}
_VERDICTS = {True: "OK", False: "FAIL"}


class _OfFile(Verb):
    """A verb about the engine's file of post-tasks."""

    file: Optional[str]

    @classmethod
    def add_common(cls, parser: Parser) -> None:
        """Add --file."""
        parser.add_argument(
            "--file",
            metavar="FILE",
            type=file_name,
            help="the post-tasks file; default: the engine's, in "
            "/etc/ovirt-engine/ansible",
        )


class _ChangesFile(_OfFile):
    """A verb that changes it."""

    changes = True
    dry_run: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "-n",
            "--dry-run",
            action="store_true",
            help="change nothing; show the differences",
        )

    def changed(self, folder: Path, before: Optional[bytes]) -> Optional[bytes]:
        """Return the file's content after the change; None is for a missing file.
        Raises PostTasksProblem.
        """
        raise NotImplementedError

    def run(self, context: Context) -> int:
        output = context.output
        file = PostTasksFile(self.file or POST_TASKS)
        with file.locked():
            before = file.read()
            try:
                after = self.changed(file.named.parent, before)
            except PostTasksProblem as problem:
                sentence = f"{file.named}: {problem}; it was not changed"
                raise PostTasksProblem(problem.id, sentence, problem.fix) from None
            result = "nothing to do"
            if after != before:
                result = "would be changed" if self.dry_run else "changed"
            if result == "changed":
                output.unchanged = False
                file.replace(before, after)
        state = deploy_hook.find(after or b"", collection_name()).state
        differences = _diff(before, after, str(file.named))
        backup = (
            str(file.backup) if result == "changed" and before is not None else None
        )
        if not output.for_people:
            shown: dict[str, Any] = {
                "dry_run": self.dry_run,
                "file": str(file.named),
                "result": result,
                "block": state,
                "backup": backup,
                "diff": differences,
            }
            output.document("deploy-hook", shown)
        elif result == "nothing to do":
            output.text(f"Nothing to do: the block is {state} in {file.named}.")
        elif self.dry_run:
            for line in differences:
                output.line(line)
        else:
            output.text(f"{file.named} was changed: the block is {state}.")
            if backup:
                output.text(f"The file as it was before is {backup}.")
            if state == deploy_hook.INSTALLED:
                output.text(
                    "The engine now prepares each host that it installs. For hosts "
                    "that exist: ovirt-rdma hosts prepare."
                )
        return 0


class Install(_ChangesFile):
    """Add the block, or bring it up to date; a second time changes nothing."""

    codes = "0 installed, or nothing to do, 1 failed, 75 another run"
    examples = ("", "--dry-run")
    more = (
        "Adds a marked block to the engine's file of post-tasks, or updates it.\n"
        "The other lines stay as they are, byte for byte; a copy is kept\n"
        "beside the file. Nothing is written unless ansible-playbook accepts it."
    )

    def run(self, context: Context) -> int:
        if collection_folder() is None:
            raise Problem(
                "role-missing",
                "the collection ovirt_rdma.host is not installed on this machine, so "
                "the engine could not prepare a host",
                "dnf install ovirt-rdma-engine",
            )
        return super().run(context)

    def changed(self, folder: Path, before: Optional[bytes]) -> bytes:
        after = deploy_hook.installed(before, collection_name())
        if after != before:
            deploy_hook.check_syntax(after, folder)
        return after


class Remove(_ChangesFile):
    """Remove the block; the file is then as before it."""

    codes = "0 removed, or nothing to do, 1 failed, 75 another run"
    examples = ("", "--dry-run")
    more = (
        "Restores the file as it was before the block, byte for byte. A file\n"
        "that did not exist is deleted."
    )

    def changed(self, folder: Path, before: Optional[bytes]) -> Optional[bytes]:
        return None if before is None else deploy_hook.removed(before)


class Status(_OfFile):
    """Show the state of the block and what it needs; return 3 if it cannot work."""

    codes = "0 installed and current, 1 failed, 3 not so"
    examples = ("", "-o json")

    def run(self, context: Context) -> int:
        output = context.output
        file = PostTasksFile(self.file or POST_TASKS)
        content = file.read()
        why, state = "", "unknown"
        try:
            state = deploy_hook.find(content or b"", collection_name()).state
        except PostTasksProblem as problem:
            why = problem.one_line
        problems = _problems(file, content)
        collection = collection_folder()
        role = collection is not None and is_folder(collection / "roles/prepare/tasks")
        rows = [
            ("block", _VERDICTS[state == deploy_hook.INSTALLED], why or state),
            ("role", _VERDICTS[role], str(collection) if role else "not found"),
            *(("file", "FAIL", one.one_line) for one in problems),
        ]
        if not output.for_people:
            content_of = {
                "file": str(file.named),
                "block": state,
                "problem": why,
                "role_found": role,
                "collection": str(collection) if collection else None,
                "findings": [
                    {"id": one.id, "sentence": one.one_line, "fix": one.fix}
                    for one in problems
                ],
            }
            output.document("deploy-hook-status", content_of)
        else:
            output.table(("WHAT", "VERDICT", "STATE"), rows, _COLORS)
            # Without the role nothing is installed.
            if not role:
                output.fix("dnf install ovirt-rdma-engine")
            if state in (deploy_hook.MISSING, deploy_hook.OUTDATED):
                words = ["--file", self.file] if self.file else []
                output.fix(
                    f"ovirt-rdma deploy-hook install {shlex.join(words)}".strip()
                )
            for one in problems:
                output.fix(one.fix)
        failed = any(row[1] == "FAIL" for row in rows)
        return ExitCode.CHECKS_FAILED if failed else ExitCode.DONE


def _problems(file: PostTasksFile, content: Optional[bytes]) -> list[Problem]:
    """Return why the engine could not use the files: the tasks, settings and policy."""
    found: list[Problem] = []
    try:
        if content is not None:
            deploy_hook.check_syntax(content, file.named.parent)
    except PostTasksProblem as problem:
        found.append(problem)
    for path in (file.path, Path(deploy_hook.SETTINGS), Path(POLICY_YAML)):
        user = deploy_hook.user_without_access(path)
        if user:
            sentence = f"{path} cannot be read by the engine's user, {user}"
            fix = f"chmod o+r {path}"
            found.append(Problem("post-tasks-not-readable", sentence, fix))
    try:
        deploy_hook.read_settings(collection=collection_folder())
    except deploy_hook.SettingsProblem as problem:
        found.append(problem)
    return found


def _diff(before: Optional[bytes], after: Optional[bytes], name: str) -> list[str]:
    texts = [(part or b"").decode("utf-8", "replace") for part in (before, after)]
    now, then = (text.splitlines() for text in texts)
    files = (f"{name} now", f"{name} then")
    return list(difflib.unified_diff(now, then, *files, lineterm=""))
