# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``policy init``, ``edit``, ``check``, ``load`` and ``show``."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import stat
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Optional

from ovirt_rdma.cli.host.arguments import (
    OTHER_RUN,
    HostVerb,
    add_facts,
    add_policy,
    export_of,
)
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.shown.policy import policy_counts, show_parts
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import (
    Approval,
    Context,
    Parser,
    add_assume_yes,
    approve,
    file_name,
)
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.modules import with_module_details
from ovirt_rdma.host.collect.storage import MOUNTINFO
from ovirt_rdma.host.errors import NOTHING_CHANGED, ExitCode, Problem
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import load as load_facts
from ovirt_rdma.host.paths import POLICY_JSON, POLICY_YAML, under
from ovirt_rdma.host.policy.difference import RuleChange, differing_lines, rule_changes
from ovirt_rdma.host.policy.forms import Diagnostic, PolicyProblem
from ovirt_rdma.host.policy.load import PolicyFile, load_policy_file
from ovirt_rdma.host.policy.model import (
    TCP,
    NfsRule,
    Policy,
    digest,
    rule_for,
    to_json_dict,
)
from ovirt_rdma.host.policy.store import in_force, store
from ovirt_rdma.host.rules.modules import vendors_client
from ovirt_rdma.host.system.files import write_atomically
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.safe_file import read_named
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.policy_proposal import proposed


class Check(HostVerb):
    """Validate a policy file; return 0, or 3 and print all mistakes.

    Raises PolicyProblem if the file cannot be read.
    """

    codes = "0 valid, 1 it cannot be read, 3 it has mistakes"
    examples = ("", "new.yaml")

    file: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_file(parser)

    def run(self, context: Context) -> int:
        output = context.output
        path = _file(self.file, context)
        errors: tuple[Diagnostic, ...] = ()
        warnings: tuple[Diagnostic, ...] = ()
        drop_ins: tuple[str, ...] = ()
        fix, counts = "", ""
        try:
            loaded = load_policy_file(path)
            warnings = loaded.warnings_on(*_client(context.root))
            counts, drop_ins = policy_counts(loaded.policy), loaded.drop_ins
        except PolicyProblem as problem:
            if problem.exit_code == ExitCode.FAILED:
                raise
            errors, fix = problem.errors, problem.fix
        if output.for_people:
            for remark in errors:
                output.line(remark.at(str(path)))
            for remark in warnings:
                output.line(f"{remark.at(str(path))} (warning)")
            if errors:
                output.line(f"{path} is invalid: {count(len(errors), 'mistake')}.")
                output.fix(fix)
            else:
                output.line(f"{path}{_with(drop_ins)} is valid: {counts}.")
        else:
            output.document(
                "policy-check",
                {
                    "file": str(path),
                    "drop_ins": list(drop_ins),
                    "in_order": not errors,
                    "errors": [_remark(one, path) for one in errors],
                    "warnings": [_remark(one, path) for one in warnings],
                },
            )
        return ExitCode.CHECKS_FAILED if errors else ExitCode.DONE


def _client(root: str) -> tuple[Optional[bool], frozenset[str]]:
    """Return whether this host's NFS client is a vendor's, and the words of its nfs(5).
    None, and no word: unknown.
    """
    tree, reader, page = FileTree(root), HostReader(root), b""
    for name in ("nfs.5.gz", "nfs.5"):
        data = tree.data(f"/usr/share/man/man5/{name}") or b""
        with suppress(OSError, EOFError, zlib.error):
            page = page or (gzip.decompress(data) if name.endswith("gz") else data)
    words = re.findall(rb"[a-z][a-z0-9_.]+", page)
    modules = with_module_details(tree, reader.kernel_release(), reader.modules(), [])
    return vendors_client(modules), frozenset(word.decode() for word in words)


def _remark(remark: Diagnostic, path: Path) -> dict[str, object]:
    file = remark.file or str(path)
    return {"id": remark.sentence.id, **remark._replace(file=file)._asdict()}


def _with(drop_ins: Sequence[str]) -> str:
    return f" with {count(len(drop_ins), 'drop-in')}" if drop_ins else ""


class Load(HostVerb, Approval):
    """Validate a policy file and load it, and show what that changes."""

    codes = (
        "0 loaded,\n"
        "1 it cannot be read, is writable by others than root, or not stored,\n"
        f"3 it has mistakes, 4 declined, {OTHER_RUN}"
    )
    examples = ("", "new.yaml --dry-run", "new.yaml -y")
    more = (
        "vdsmd uses the policy from its next connect on. Existing mounts stay\n"
        "as they are. Asks first if another rule, or none, would win for an\n"
        "export that is mounted and has a rule now."
    )

    file: Optional[str]
    dry_run: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_file(parser)
        parser.add_argument(
            "-n", "--dry-run", action="store_true", help="show what would change"
        )
        add_assume_yes(parser)

    def run(self, context: Context) -> int:
        output = context.output
        path = _file(self.file, context)
        loaded = load_policy_file(path, own=True)
        _warn(loaded, path, context)
        effect = _Effect(loaded.policy, context)
        if output.for_people:
            for line in effect.shown:
                output.text(line)
        changed = effect.changed
        notes: tuple[str, ...] = ()
        if not self.dry_run:
            if effect.doubts:
                shown = () if output.for_people else effect.shown
                approve(self, output, shown, effect.doubts)
            source, target = str(path.absolute()), under(context.root, POLICY_JSON)
            with one_run(context.root, by="policy load"):
                result = store(loaded.policy, source, target)
            changed, notes = result.changed, result.remarks
        for remark in notes:
            output.message(f"warning: {remark}")
        policy, new = loaded.policy, digest(loaded.policy)
        if not output.for_people:
            output.document(
                "policy-load",
                {
                    "dry_run": self.dry_run,
                    "file": str(path),
                    "drop_ins": list(loaded.drop_ins),
                    "changed": changed,
                    "digest": new,
                    # To compare it with a file for many hosts: drop-ins are the host's.
                    "file_digest": digest(loaded.alone),
                    "rules": len(policy.nfs.rules),
                    "interfaces": len(policy.host.interfaces),
                    "modules": len(policy.host.modules),
                    "module_options": len(policy.host.module_options),
                    "notes": list(notes),
                    "differences": list(effect.lines),
                    "rule_changes": [asdict(change) for change in effect.changes],
                    "doubts": list(effect.doubts),
                },
            )
        elif self.dry_run:
            output.line(NOTHING_CHANGED)
        else:
            verb = "is loaded" if changed else "was already loaded"
            what = f"{policy_counts(policy)}, {new}"
            output.line(f"{path}{_with(loaded.drop_ins)} {verb}: {what}.")
        return ExitCode.DONE


class _Effect:
    """What ``new`` changes against the policy in force on this host."""

    def __init__(self, new: Policy, context: Context) -> None:
        stored = in_force(under(context.root, POLICY_JSON)).stored
        present = stored.policy if stored else Policy()
        # Without an earlier one all is new.
        self.lines = differing_lines(present, new) if stored else ()
        self.changed = stored is None or stored.digest != digest(new)
        self.changes: tuple[RuleChange, ...] = ()
        problems: list[str] = []
        if present.nfs != new.nfs:
            mounts = HostReader(context.root).nfs_mounts(problems)
            exports = {one.source: f"mounted at {one.mountpoint}" for one in mounts}
            self.changes = rule_changes(present, new, exports)
        unread = [one for one in problems if present.nfs.rules and MOUNTINFO in one]
        self.doubts = (
            *(str(change) for change in self.changes if change.loses),
            *(f"not all mounts are known: {problem}" for problem in unread),
        )

    @property
    def shown(self) -> tuple[str, ...]:
        """The differences for people, line by line; the doubts are last."""
        gained = [str(change) for change in self.changes if not change.loses]
        return (*self.lines, *gained, *self.doubts)


class Init(HostVerb):
    """Print a commented policy for what is mounted and plugged in now."""

    codes = "0 printed"
    examples = ("> policy.yaml", "--facts hv1.json")
    more = (
        "Changes nothing. Names the exports that are reached by an RDMA port, with\n"
        "prefer-rdma, and the InfiniBand ports that are up, and says why each line\n"
        "is there and what is left out."
    )

    facts: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_facts(parser)

    def run(self, context: Context) -> int:
        output = context.output
        if self.facts is None:
            facts = HostReader(context.root).facts()
        else:
            facts = load_facts(self.facts)
        for sentence in facts.problems:
            output.message(f"note: {sentence}")
        text = proposed(facts)
        if not output.for_people:
            output.document("policy-proposal", {"text": text})
            return ExitCode.DONE
        for line in text.splitlines():
            output.line(line)
        return ExitCode.DONE


class Edit(HostVerb):
    """Edit a policy file, and write it only if it is valid."""

    codes = "0 written or unchanged, 1 failed, 3 it has mistakes, and is not written"
    examples = ("", "new.yaml")
    more = (
        "Runs $VISUAL, $EDITOR or vi on a draft beside the file. A draft with\n"
        "mistakes is kept, and its name is printed. Nothing is loaded."
    )

    file: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_file(parser)

    def run(self, context: Context) -> int:
        output, path = context.output, _file(self.file, context)
        try:
            before = _content(path)
            with tempfile.NamedTemporaryFile(
                dir=path.parent, prefix=".draft.", suffix=".yaml", delete=False
            ) as opened:
                opened.write(before)
            draft = Path(opened.name)
            loaded = _edited(draft, output)
            after = _content(draft)
            if after != before:
                if _content(path) != before:
                    raise Problem(
                        "policy-file-changed",
                        f"{path} was changed by somebody else; your draft is {draft}",
                        f"compare them: diff {path} {draft}",
                    )
                mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
                write_atomically(path, after, mode)
            draft.unlink()
        except OSError as error:
            raise Problem(
                "policy-file-not-written",
                f"{error.filename or path}: {error.strerror}",
                "run it as root, or name a file that you may write",
            ) from error
        if after == before:
            output.line(NOTHING_CHANGED)
            return ExitCode.DONE
        _warn(loaded, path, context)
        output.line(f"{path} is written: {policy_counts(loaded.policy)}.")
        words = [] if self.file is None else [shlex.quote(self.file)]
        output.next(" ".join([PROGRAM, "policy load", *words]))
        return ExitCode.DONE


def _content(path: Path) -> bytes:
    return read_named(path) if path.exists() else b""


def _edited(draft: Path, output: Output) -> PolicyFile:
    """Let the operator edit ``draft``, and return its policy. Raises Problem, and
    leaves the draft.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    output.flush()
    try:
        subprocess.run([*shlex.split(editor), draft], check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise Problem(
            "editor-failed",
            f"the editor failed: {error}; the draft is {draft}",
            "set VISUAL or EDITOR to another editor",
        ) from error
    return load_policy_file(draft)


class Show(HostVerb):
    """Show the whole policy, or the rule that names an export and why."""

    codes = "0 printed, also if no rule names the export"
    examples = (
        "",
        "--export nas1:/export/vm",
        "--policy new.yaml --export nas1:/export/vm",
    )

    export: Optional[Export]
    policy: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "--export",
            metavar="SERVER:/PATH",
            type=export_of,
            help="show the rule that names this export, and why",
        )
        add_policy(parser)

    def run(self, context: Context) -> int:
        policy, source = policy_in_question(self.policy, context)
        if self.export is None:
            _show_policy(policy, source, context.output)
        else:
            _show_rule_for(policy, source, self.export, context.output)
        return 0


def _add_file(parser: Parser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=file_name,
        help=f"the policy file; default: {POLICY_YAML}",
    )


def policy_in_question(file: Optional[str], context: Context) -> tuple[Policy, str]:
    """Return the policy in ``file``, or the loaded one, and where it is from.

    Warnings about a policy file go to stderr.
    """
    output = context.output
    if file is not None:
        path = Path(file)
        loaded = load_policy_file(path)
        _warn(loaded, path, context)
        return loaded.policy, str(path)
    current = in_force(under(context.root, POLICY_JSON))
    stored, problem = current.stored, current.problem
    if problem is not None and stored is None:
        raise problem
    if problem is not None:
        output.message(f"warning: {problem}; {current.consequence}; fix: {problem.fix}")
    if stored is None:
        return Policy(), "no policy is loaded"
    copy = ", from its copy" if problem else ""
    return stored.policy, f"{stored.source}, loaded {stored.loaded_at}{copy}"


def _file(file: Optional[str], context: Context) -> Path:
    return under(context.root, POLICY_YAML) if file is None else Path(file)


def _warn(loaded: PolicyFile, path: Path, context: Context) -> None:
    for remark in loaded.warnings_on(*_client(context.root)):
        context.output.message(f"warning: {remark.at(str(path))}")


def _show_policy(policy: Policy, source: str, output: Output) -> None:
    rules = policy.nfs.rules
    if not output.for_people:
        output.document("policy", {"source": source, **to_json_dict(policy)})
        return
    if rules:
        rows = [
            (r.name, r.server, r.path, r.transport, _port(r), r.options or "-")
            for r in rules
        ]
        output.table(("RULE", "SERVER", "PATH", "TRANSPORT", "PORT", "OPTIONS"), rows)
        order = "; the first that names an export wins" if len(rules) > 1 else ""
        output.line(f"{count(len(rules), 'NFS rule')}{order} ({source}).")
    else:
        output.line(f"No NFS rule: VDSM mounts every export as stock ({source}).")
    show_parts(policy, output)


def _show_rule_for(policy: Policy, source: str, export: Export, output: Output) -> None:
    match = rule_for(policy, export)
    rule = match.rule if match else None
    if not output.for_people:
        shown = match and {**asdict(match.rule), "reason": match.reason}
        content = {"export": str(export), "source": source, "rule": shown}
        output.document("policy-rule", content)
    elif match is None or rule is None:
        output.line(f"No rule names {export}: VDSM mounts it as stock ({source}).")
    else:
        plain = f"rule {rule.number}"
        name = plain if rule.name == plain else f"{rule.name} ({plain})"
        output.fields(
            (
                ("export", str(export)),
                ("rule", name),
                ("why", match.reason),
                ("transport", rule.transport),
                ("port", _port(rule)),
                ("options", rule.options or "-"),
                ("policy", source),
            )
        )


def _port(rule: NfsRule) -> str:
    return "-" if rule.transport == TCP else str(rule.port)
