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

from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import Context, Parser, Verb, file_name
from ovirt_rdma.engine_sdk_tools.deploy_hook import block, post_tasks
from ovirt_rdma.engine_sdk_tools.deploy_hook.block import PostTasksProblem
from ovirt_rdma.engine_sdk_tools.deploy_hook.post_tasks import (
    POST_TASKS,
    PostTasksFile,
)
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import collection_folder
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.exit_code import ExitCode
from ovirt_rdma.host.paths import POLICY_YAML

_COLORS = {"OK": "good", "WARN": "doubtful", "FAIL": "bad"}


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

    @property
    def _given(self) -> str:
        """The option for the same file, for a command that is shown."""
        return f"--file {shlex.quote(self.file)}" if self.file else ""


class _ChangesFile(_OfFile):
    """A verb that changes it."""

    changes = True
    dry_run: bool
    force: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "-n",
            "--dry-run",
            action="store_true",
            help="change nothing; show the differences",
        )
        parser.add_argument(
            "--force", action="store_true", help="also if the block was edited"
        )


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
        output = context.output
        collection = collection_folder()
        if collection is None:
            raise Problem(
                "role-missing",
                "the collection ovirt_rdma.host is not installed on this machine, so "
                "the engine could not prepare a host",
                "dnf install ovirt-rdma-engine",
            )
        file = PostTasksFile(self.file or POST_TASKS)
        with file.locked():
            before = file.read()
            try:
                after = block.installed(before, str(collection), force=self.force)
                if after == before:
                    return _show(self, output, file, "nothing to do", (before, after))
                if before is not None:
                    block.check_syntax(block.foreign_part(before), file.named.parent)
                block.check_syntax(after, file.named.parent)
            except PostTasksProblem as problem:
                raise _in_file(file, problem) from None
            return _replace(self, output, file, before, after)


class Remove(_ChangesFile):
    """Remove the block; the file is then as before it."""

    codes = "0 removed, or nothing to do, 1 failed, 75 another run"
    examples = ("", "--dry-run")
    more = (
        "Restores the file as it was before the block, byte for byte. A file\n"
        "that did not exist is deleted."
    )

    def run(self, context: Context) -> int:
        output = context.output
        file = PostTasksFile(self.file or POST_TASKS)
        with file.locked():
            before = file.read()
            try:
                after = (
                    None if before is None else block.removed(before, force=self.force)
                )
            except PostTasksProblem as problem:
                raise _in_file(file, problem) from None
            if after == before:
                return _show(self, output, file, "nothing to do", (before, after))
            return _replace(self, output, file, before, after)


def _replace(
    args: _ChangesFile,
    output: Output,
    file: PostTasksFile,
    before: Optional[bytes],
    after: Optional[bytes],
) -> int:
    if args.dry_run:
        return _show(args, output, file, "would be changed", (before, after))
    output.unchanged = False
    file.replace(before, after)
    return _show(args, output, file, "changed", (before, after))


def _show(
    args: _ChangesFile,
    output: Output,
    file: PostTasksFile,
    result: str,
    content: tuple[Optional[bytes], Optional[bytes]],
) -> int:
    before, after = content
    state = block.MISSING if after is None else block.find(after, _collection()).state
    differences = _diff(before, after, str(file.named))
    backup = str(file.backup) if result == "changed" and before is not None else None
    if not output.for_people:
        shown: dict[str, Any] = {
            "dry_run": args.dry_run,
            "file": str(file.named),
            "result": result,
            "block": state,
            "backup": backup,
            "diff": differences,
        }
        output.document("deploy-hook", shown)
        return 0
    if result == "nothing to do":
        output.text(f"Nothing to do: the block is {state} in {file.named}.")
        return 0
    if args.dry_run:
        for line in differences:
            output.line(line)
        return 0
    output.text(f"{file.named} was changed: the block is {state}.")
    if backup:
        output.text(f"The file as it was before is {backup}.")
    if state == block.INSTALLED:
        output.text(
            "The engine now prepares each host that it installs. For hosts that exist: "
            "ovirt-rdma hosts prepare."
        )
    return 0


class Status(_OfFile):
    """Show the state of the block and what it needs; return 3 if it cannot work."""

    codes = "0 installed and current, 1 failed, 3 not so"
    examples = ("", "-o json")

    def run(self, context: Context) -> int:
        output = context.output
        file = PostTasksFile(self.file or POST_TASKS)
        content = file.read()
        machine = block.engine_machine()
        why, state = "", "unknown"
        try:
            state = block.find(content or b"", _collection()).state
        except PostTasksProblem as problem:
            why = problem.one_line
        problems = _problems(file, content)
        rows = [
            ("block", _verdict(state == block.INSTALLED), why or state),
            (
                "engine",
                _verdict(None if machine.runs_hook is None else machine.runs_hook),
                f"version {machine.version or 'unknown'}, its playbook "
                + {True: "includes", False: "does not include", None: "may include"}[
                    machine.runs_hook
                ]
                + " the file",
            ),
            (
                "role",
                _verdict(machine.role),
                str(machine.collection) if machine.role else "not found",
            ),
            *(("file", "FAIL", one.one_line) for one in problems),
        ]
        if not output.for_people:
            content_of = {
                "file": str(file.named),
                "block": state,
                "problem": why,
                "engine_version": machine.version,
                "engine_runs_hook": machine.runs_hook,
                "role_found": machine.role,
                "collection": str(machine.collection) if machine.collection else None,
                "findings": [
                    {"id": one.id, "sentence": one.one_line, "fix": one.fix}
                    for one in problems
                ],
            }
            output.document("deploy-hook-status", content_of)
        else:
            output.table(("WHAT", "VERDICT", "STATE"), rows, _COLORS)
            # Without the role nothing is installed.
            if not machine.role:
                output.fix("dnf install ovirt-rdma-engine")
            of = self._given
            if state in (block.MISSING, block.OUTDATED):
                output.fix(f"ovirt-rdma deploy-hook install {of}".rstrip())
            elif state == block.EDITED:
                output.fix(f"ovirt-rdma deploy-hook install --force {of}".rstrip())
            for one in problems:
                output.fix(one.fix)
        failed = any(row[1] == "FAIL" for row in rows)
        return ExitCode.CHECKS_FAILED if failed else ExitCode.DONE


def _problems(file: PostTasksFile, content: Optional[bytes]) -> list[Problem]:
    """Return why the engine could not use the files: the tasks, settings and policy."""
    found: list[Problem] = []
    if content is not None:
        try:
            block.check_syntax(content, file.named.parent)
        except PostTasksProblem as problem:
            found.append(problem)
    for path in (file.path, Path(block.SETTINGS), Path(POLICY_YAML)):
        user = block.user_without_access(path)
        if user:
            found.append(
                Problem(
                    "post-tasks-not-readable",
                    f"{path} cannot be read by the engine's user, {user}",
                    f"chmod o+r {path}",
                )
            )
    try:
        post_tasks.read_settings(collection=collection_folder())
    except post_tasks.SettingsProblem as problem:
        found.append(problem)
    return found


def _verdict(good: Optional[bool]) -> str:
    return {True: "OK", False: "FAIL", None: "WARN"}[good]


def _collection() -> str:
    folder = collection_folder()
    return block.COLLECTION if folder is None else str(folder)


def _in_file(file: PostTasksFile, problem: PostTasksProblem) -> PostTasksProblem:
    sentence = f"{file.named}: {problem}; it was not changed"
    return PostTasksProblem(problem.id, sentence, problem.fix)


def _diff(before: Optional[bytes], after: Optional[bytes], name: str) -> list[str]:
    texts = [(part or b"").decode("utf-8", "replace") for part in (before, after)]
    now, then = (text.splitlines() for text in texts)
    files = (f"{name} now", f"{name} then")
    return list(difflib.unified_diff(now, then, *files, lineterm=""))
