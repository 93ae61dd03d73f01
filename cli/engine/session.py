# SPDX-License-Identifier: GPL-2.0-or-later
"""Share what the verbs of ``ovirt-rdma`` need: settings, session, progress, matrices.

One line per step that ended; on a terminal, the step that is being done is shown below
them. With -o json|yaml, one JSON object per line.

A matrix of hosts is a table for people, with each sentence once below it, or a document
for programs (docs/matrix.md).
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shlex
import stat
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional

from ovirt_rdma.cli.engine.main import AccessOptions, ChangeOptions, EngineVerb
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import AllowNone, Context, approve, verdict_code
from ovirt_rdma.engine_sdk_tools import model
from ovirt_rdma.engine_sdk_tools.api.auth import (
    IniFile,
    Settings,
    engine_host_port,
    from_sources,
    settings_file,
    state_folder,
)
from ovirt_rdma.engine_sdk_tools.api.request import (
    Call,
    EngineProblem,
    Listener,
    LostAnswer,
    wire_form,
)
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.automation import RdmaEngine
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from ovirt_rdma.engine_sdk_tools.domains.transport import no_report
from ovirt_rdma.engine_sdk_tools.hosts.ansible import Access, AnsibleHosts, default_key
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    NO_ACCESS,
    DumpFolder,
    HostAccess,
    HostReport,
    reports_of,
)
from ovirt_rdma.engine_sdk_tools.model import Host, Matrix
from ovirt_rdma.host.errors import ExitCode, Problem, UsageProblem, worst
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy.load import PolicyFile, load_policy_file
from ovirt_rdma.host.system.files import remove_unfinished
from ovirt_rdma.host.system.safe_file import read_named
from ovirt_rdma.host.system.text import printable

# On the engine machine, the CA that signed the certificate of its web server; by
# default the second, the engine's own CA.
ENGINE_CAS = ("/etc/pki/ovirt-engine/apache-ca.pem", "/etc/pki/ovirt-engine/ca.pem")


def settings_of(args: EngineVerb, output: Output) -> Settings:
    """Return the settings, also asking for the password. Raises Problem."""
    ini = read_ini(args.config_file, output)
    return completed(found_settings(args, ini, args.config, output))


def completed(settings: Settings) -> Settings:
    """Return ``settings`` with the CA checked and the password. Raises Problem."""
    ca_file, where = settings.ca_file, engine_host_port(settings.url)
    if ca_file and "-----BEGIN " not in _read(Path(ca_file), "the CA file")[0]:
        raise Problem(
            "ca-file-no-certificate", f"{ca_file} contains no certificate in PEM form"
        )
    if settings.username is None and settings.token is None:
        raise Problem(
            "engine-no-user",
            f"the user for {where} is missing",
            "give --username, for example admin@internal, or set OVIRT_USERNAME",
        )
    if settings.password is not None or settings.token is not None:
        return settings
    password = ""
    if sys.stdin is not None and sys.stdin.isatty():
        question = f"Password of {settings.username} at {where}: "
        with contextlib.suppress(EOFError):
            password = getpass.getpass(printable(question))
    if not password:
        raise Problem(
            "engine-no-password",
            f"there is no password for {settings.username} at {where}",
            "give --password-file, or set OVIRT_PASSWORD",
        )
    return replace(settings, password=password)


def found_settings(
    args: EngineVerb, ini: Optional[IniFile], section: Optional[str], output: Output
) -> Settings:
    """Return the settings of options, environment and file, without asking."""
    password: Optional[str] = None
    if name := args.password_file:
        text, open_to_others = _read(Path(name), "the password file")
        password = next(iter(text.splitlines()), "")
        if not password:
            raise Problem(
                "password-file-empty",
                f"the first line of {name} is empty",
                "write the password into the first line",
            )
        if open_to_others:
            _warn_of_others(name, output)
    given = {
        "engine_url": args.engine_url,
        "username": args.username,
        "password": password,
        "cafile": args.ca_file,
    }
    default_ca = next((ca for ca in ENGINE_CAS if os.access(ca, os.R_OK)), None)
    return from_sources(os.environ, given, ini, section, default_ca)


def read_ini(name: Optional[str], output: Output) -> Optional[IniFile]:
    """Return the settings file or None; warn if others can read a password in it."""
    if name is None and not {"HOME", "XDG_CONFIG_HOME"} & os.environ.keys():
        return None
    path = settings_file(os.environ) if name is None else Path(name)
    # Files that a killed ``login`` left may contain a password.
    remove_unfinished(Path(os.path.realpath(path)).parent)
    if name is None and not os.access(path, os.F_OK):
        return None
    text, open_to_others = _read(path, "the settings file")
    if open_to_others and re.search(r"(?im)^\s*password\b", text):
        _warn_of_others(str(path), output)
    return IniFile(str(path), text)


def _warn_of_others(file: str, output: Output) -> None:
    command = f"chmod 600 {shlex.quote(file)}"
    output.message(f"warning: others can read the password in {file}: {command}")


def _read(path: Path, what: str) -> tuple[str, bool]:
    """Return the text, and True if others than the owner can read the file."""
    try:
        mode = path.stat().st_mode
        text = read_named(path).decode("utf-8")
    except OSError as error:
        raise Problem(
            "file-unreadable", f"{what} {path} cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise Problem("file-not-utf8", f"{what} {path} is not UTF-8 text") from error
    return text, stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


class Notes(Listener):
    """Prints notes, and no steps: for a verb that reads from the engine."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def note(self, sentence: str) -> None:
        warning = sentence.startswith("warning: ")
        self._output.message(sentence if warning else f"note: {sentence}")


class Progress(Notes):
    """Shows the steps of long work on stderr: one line per step that ended, with the
    number of steps so far; with ``output.json_lines`` an object per event (plan, begin,
    end) with ``step``, ``host``, ``problem``, and ``at`` in seconds since 1970.
    """

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self._done = self._total = 0
        self._lock = threading.Lock()

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        self._total = total
        if self._output.json_lines:
            self._output.event("plan", hosts=list(subjects), steps=total)

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        with self._lock:
            if self._output.json_lines:
                self._output.event("begin", step=step, host=subject)
            else:
                self._output.progress(self._line(step, subject))

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        with self._lock:
            self._done += 1
            if self._output.json_lines:
                self._output.event("end", step=step, host=subject, problem=problem)
                return
            line = self._line(step, subject)
            self._output.message(f"{line}: failed: {problem}" if problem else line)

    def note(self, sentence: str) -> None:
        with self._lock:
            super().note(sentence)

    def close(self) -> None:
        self._output.progress("")

    def _line(self, step: str, subject: Optional[str]) -> str:
        # There may be more steps than planned, such as a rollback.
        total = f"/{self._total}" if self._done <= self._total else ""
        where = f"{subject}: " if subject else ""
        return f"[{self._done}{total}] {where}{step}"


def ask_hosts(
    hosts: Sequence[Host], access: Optional[HostAccess], output: Output
) -> Iterator[tuple[Host, HostReport]]:
    """Yield each host with its report, or an empty one; show how many answered."""
    if access is None:
        for host in hosts:
            yield host, no_report(host)
        return
    answered = 0

    def done(_: str) -> None:
        nonlocal answered
        answered += 1
        output.progress(f"{answered} of {len(hosts)} hosts have answered")

    output.progress(f"asking {len(hosts)} hosts")
    yield from reports_of(hosts, access, done)
    output.progress("")


def note_no_access(access: Optional[HostAccess], output: Output) -> None:
    """Report on stderr that no host is asked, and the fix, if there is no access."""
    if access is None:
        sentence, fix = NO_ACCESS
        output.message(f"note: {sentence}")
        output.message(f"fix: {fix}")


def conversion_states() -> StateFolder:
    """Return the folder with the states of this user."""
    return StateFolder(state_folder(os.environ, os.geteuid()))


def rdma_engine(
    args: AccessOptions,
    context: Context,
    session: Session,
    *,
    tasks: bool = True,
    noted: bool = True,
) -> RdmaEngine:
    """Return the engine with the host access that the arguments name; if it is
    ``noted``, a note says that there is none. ``tasks`` as in RdmaEngine.
    """
    access, output = access_of(args, context), context.output
    if noted:
        note_no_access(access, output)
    ask = partial(ask_hosts, output=output)
    return RdmaEngine(session, access, conversion_states(), ask=ask, tasks=tasks)


def own_policy(file: Optional[str]) -> Optional[tuple[PolicyFile, Path]]:
    """Return the policy of ``file`` or this machine. Raises PolicyProblem."""
    if file is not None:
        path = Path(file)
        return load_policy_file(path, alone=True), path
    path = Path(POLICY_YAML)
    try:
        path.stat()
    except FileNotFoundError:
        return None
    except OSError:
        pass  # its reader says why
    return load_policy_file(path, alone=True), path


def open_session(args: EngineVerb, output: Output) -> Session:
    """Return a session for ``with``. Raises Problem without engine or password."""
    session = Session(settings_of(args, output))
    session.listener = Notes(output)
    return session


def access_of(args: AccessOptions, context: Context) -> Optional[HostAccess]:
    """Return the host access of ``context`` or of the arguments, or None. Root on the
    engine machine has the engine's own key.
    """
    if context.access is not None:
        return context.access
    over_ssh = any((args.inventory, args.ssh_key, args.ssh_user))
    if args.facts_dir is not None:
        if over_ssh:
            raise UsageProblem(
                "options-exclude-each-other",
                "--facts-dir replaces access over SSH",
                "omit --facts-dir, or the options of SSH",
            )

        return DumpFolder(args.facts_dir)

    key = default_key()
    if not over_ssh and key is None:
        return None

    user = args.ssh_user or "root"
    way = Access(user, args.ssh_key or key, args.inventory)
    return AnsibleHosts(way)


def show_calls(
    output: Output, calls: Sequence[Call], kind: str = "calls", **more: Any
) -> None:
    """Print the requests as they would be sent; ``more`` is for the document."""
    if not output.for_people:
        shown = [
            {"doing": call.doing, "about": call.subject, **request_document(call)}
            for call in calls
        ]
        output.document(kind, {"dry_run": True, **more, "calls": shown})
        return
    if not calls:
        output.line("Nothing would be sent to the engine.")
    show_steps(output, ((call.doing, request_lines(call)) for call in calls))


def show_steps(output: Output, steps: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Print numbered steps, each a sentence with its lines, for people."""
    for number, (doing, lines) in enumerate(steps, 1):
        output.text(doing, hang=f"{number}. ")
        for line in lines:
            output.line(f"   {line}")


def request_lines(call: Optional[Call]) -> list[str]:
    """Return the request of ``call`` for people: method, path, and the body."""
    if call is None:
        return []
    form = wire_form(call)
    query = "&".join(f"{name}={value}" for name, value in form.query.items())
    first = f"{form.method} {form.path}{'?' if query else ''}{query}"
    return [first, *form.body.splitlines()]


def request_document(call: Call) -> dict[str, Any]:
    """Return the request of ``call`` for programs."""
    return {**vars(wire_form(call))}


def progress(context: Context) -> Listener:
    """Return the listener that shows the progress of long work until the verb ends."""
    listener = Progress(context.output)
    context.at_end.callback(listener.close)
    return listener


@dataclass
class Approver:
    """Asks before a verb changes something, as ``approve`` of RdmaEngine: ``lines`` of
    the plan are for the question, ``show`` for a dry run. ``plan`` is the last one.
    """

    args: ChangeOptions
    output: Output
    lines: Callable[[Any], Iterable[str]]
    show: Callable[[Any], None]
    plan: Any = None

    def __call__(self, plan: Any) -> bool:
        """Return whether to carry out ``plan``. Raises Declined."""
        self.plan = plan
        if self.args.dry_run:
            self.show(plan)
            return False
        lines = list(self.lines(plan))
        if lines:
            approve(self.args, self.output, lines)
        return True


@contextmanager
def changing(args: Any, context: Context) -> Iterator[RdmaEngine]:
    """Yield the engine with progress here, and jobs there unless --no-job is given."""
    with open_session(args, context.output) as session:
        session.listener = progress(context)
        try:
            yield rdma_engine(args, context, session, tasks=not args.no_job)
        except EngineProblem as problem:
            # For example, the user may not make the first change.
            made = session.performed or isinstance(problem, LostAnswer)
            context.output.unchanged = not made
            raise


def refuse_dumps(args: Any) -> None:
    """Raise UsageProblem for --facts-dir without --dry-run."""
    if args.facts_dir is not None and not args.dry_run:
        raise UsageProblem(
            "facts-dir-needs-dry-run",
            "--facts-dir needs --dry-run: it gives no access to hosts",
            "omit --facts-dir, or add --dry-run",
        )


def in_each(
    centers: Mapping[str, str],
    act: Callable[[str, dict[str, Any]], tuple[int, bool]],
    output: Output,
    kind: str,
    *,
    none: str,
) -> int:
    """Call ``act`` for each data center, and print one document of ``kind``; return the
    worst exit code. ``act`` gets the id, fills the content, and returns its exit code
    and whether to continue. One that is refused does not keep off the others; where it
    does not continue, the others are named as not started. ``none`` is printed without
    a data center.
    """
    parts: list[dict[str, Any]] = []
    codes: list[int] = []
    waiting = list(centers.values())
    try:
        for center, name in centers.items():
            del waiting[0]
            content: dict[str, Any] = {}
            output.unchanged = True
            try:
                code, goes_on = act(center, content)
            except Problem as problem:
                if len(centers) == 1:
                    raise
                content = output.problem(f"ovirt-rdma: {name}", problem)
                code = problem.exit_code
                goes_on = code != ExitCode.FAILED
            parts.append({"data_center": name, **content})
            codes.append(code)
            if not goes_on:
                break
    finally:
        if waiting:
            output.message(f"note: not started: {', '.join(waiting)}")
    if not output.for_people:
        output.document(kind, {"data_centers": parts, "not_started": waiting})
    elif not centers:
        output.line(f"{none}.")
    return worst(codes)


_TONES = {
    model.OK: "good",
    model.WARN: "doubtful",
    model.UNKNOWN: "doubtful",
    model.FAIL: "bad",
}
# More sentences than this would hide the worst ones.
_SENTENCES_SHOWN = 30


def show_matrix(output: Output, matrix: Matrix) -> None:
    """Print ``matrix``: one line per host; below it the problems, the worst first, each
    once for all its hosts; then the notes.
    """
    if not output.for_people:
        output.document("matrix", matrix_document(matrix))
        return
    rows = [
        [row.name, *(cell.shown for cell in cells)]
        for row, cells in zip(matrix.rows, matrix.cells)
    ]
    tones = {
        cell.shown: _TONES[cell.verdict]
        for cells in matrix.cells
        for cell in cells
        if cell.verdict in _TONES
    }
    headings = [c.name if c.id else c.name.upper() for c in matrix.columns]
    worst = {
        heading: model.VERDICTS.index(model.worst_of(cell.verdict for cell in column))
        for heading, column in zip(headings, zip(*matrix.cells))
    }
    # On a narrow terminal columns without a problem fold first.
    minor = sorted(worst, key=lambda heading: worst[heading])[::-1]
    output.table(["HOST", *headings], rows, tones, minor=minor)
    problems = model.problems_of(matrix)
    for problem in problems[:_SENTENCES_SHOWN]:
        output.line()
        output.text(f"{model.BEFORE[problem.verdict]} {problem.line}")
        output.fix(problem.fix)
    if len(problems) > _SENTENCES_SHOWN:
        output.line()
        output.text(
            f"{len(problems) - _SENTENCES_SHOWN} more are not shown; -o json has all."
        )
    for note in matrix.notes:
        output.line()
        output.text(note)


def matrix_code(args: AllowNone, output: Output, matrix: Matrix, none: str) -> ExitCode:
    """Return the exit code; ``none`` is printed if nothing was looked at."""
    looked_at = matrix.worst != model.NONE
    if not looked_at and output.for_people:
        output.text(none)
    elif not looked_at:
        output.message(f"note: {none}")
    failed = matrix.worst in (model.FAIL, model.UNKNOWN)
    return verdict_code(args, looked_at=looked_at, failed=failed)


def matrix_document(matrix: Matrix) -> dict[str, Any]:
    """Return the document of ``matrix``, without schema_version and kind."""
    return {
        "of": matrix.kind,
        "worst": matrix.worst,
        "rows": [{**vars(row)} for row in matrix.rows],
        "columns": [
            {"name": column.name, "id": column.id} for column in matrix.columns
        ],
        "cells": [[{**vars(cell)} for cell in cells] for cells in matrix.cells],
        "notes": list(matrix.notes),
    }
