# SPDX-License-Identifier: GPL-2.0-or-later
"""Provide what the verbs of ``ovirt-rdma`` share.

One line per step that ended; on a terminal, the step that is being done is shown below
them. With -o json|yaml, one JSON object per line.

This is the session with the engine, the host access, the reports of hosts, the requests
that --dry-run shows, and long work with its progress here and its job in the engine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional, Union

from ovirt_rdma.cli.engine.arguments import AccessOptions, ChangeOptions, EngineVerb
from ovirt_rdma.cli.engine.settings import settings_of
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import Context, approve
from ovirt_rdma.engine_sdk_tools.api.errors import EngineProblem, LostAnswer
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.request import Call, wire_form
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.api.settings import state_folder
from ovirt_rdma.engine_sdk_tools.automation import RdmaEngine
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from ovirt_rdma.engine_sdk_tools.domains.transport import no_report
from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts
from ovirt_rdma.engine_sdk_tools.hosts.dumps import DumpFolder
from ovirt_rdma.engine_sdk_tools.hosts.inventory import Access, default_key
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    NO_ACCESS,
    HostAccess,
    HostReport,
    reports_of,
)
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.exit_code import ExitCode, worst
from ovirt_rdma.host.paths import POLICY_YAML
from ovirt_rdma.host.policy.load import PolicyFile, load_policy_file


def engine_progress(output: Output) -> Union[LineProgress, JsonProgress]:
    """Return the listener that shows progress on this stderr until it is closed."""
    return JsonProgress(output) if output.json_lines else LineProgress(output)


def noted(sentence: str) -> str:
    """Return the line of a note; a warning says so itself."""
    return sentence if sentence.startswith("warning: ") else f"note: {sentence}"


class JsonProgress(Listener):
    """Prints one JSON object per line: ``event`` (plan, begin, end), ``step``,
    ``host``, ``problem``, and ``at`` in seconds since 1970. Messages have that form
    too: note, warning, fix, message.
    """

    def __init__(self, output: Output) -> None:
        self._output, self._print = output, output.event

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Print the hosts and the number of steps."""
        self._print("plan", hosts=list(subjects), steps=total)

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Print that a step begins."""
        self._print("begin", step=step, host=subject)

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Print that a step ended."""
        self._print("end", step=step, host=subject, problem=problem)

    def note(self, sentence: str) -> None:
        """Print a note."""
        self._output.message(noted(sentence))

    def close(self) -> None:
        """Do nothing."""


class LineProgress(Listener):
    """Prints one line per step that ended, with the number of steps so far."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._done = self._total = 0
        self._lock = threading.Lock()

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Take the total number of steps."""
        self._total = total

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Show the step until another one begins or ends."""
        with self._lock:
            self._output.progress(self._line(step, subject))

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Print the step; a problem follows it."""
        with self._lock:
            self._done += 1
            line = self._line(step, subject)
            self._output.message(f"{line}: failed: {problem}" if problem else line)

    def note(self, sentence: str) -> None:
        """Print a note."""
        with self._lock:
            self._output.message(noted(sentence))

    def close(self) -> None:
        """Erase the step that is shown."""
        self._output.progress("")

    def _line(self, step: str, subject: Optional[str]) -> str:
        # There may be more steps than planned, such as a rollback.
        total = f"/{self._total}" if self._done <= self._total else ""
        where = f"{subject}: " if subject else ""
        return f"[{self._done}{total}] {where}{step}"


def ask_hosts(
    hosts: Sequence[Host], access: Optional[HostAccess], output: Output
) -> Iterator[tuple[Host, HostReport]]:
    """Yield each host with its report; without access, with an empty report.

    On a terminal, this shows how many hosts have answered.
    """
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
    """Return the policy in ``file``, or that of this machine; None if it has none.

    Raises PolicyProblem.
    """
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


@contextmanager
def open_session(args: EngineVerb, output: Output) -> Iterator[Session]:
    """Yield a session with the engine that the arguments name.

    Raises Problem if no engine is named, or if there is no password.
    """
    settings = settings_of(args)
    for sentence in settings.warnings:
        output.message(f"warning: {sentence}")
    session = Session(replace(settings, warnings=()))
    session.listener = _Notes(output)
    try:
        yield session
    finally:
        session.close()


def access_of(
    args: AccessOptions, context: Context, *, history: bool = False
) -> Optional[HostAccess]:
    """Return the host access of ``context``, or that the arguments name, or None.

    Root on the engine machine has access with the engine's own key. Without access,
    hosts are unknown. ``history``: reports have the runs that changed the host, too.
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
    return AnsibleHosts(way, history=history)


def show_calls(
    output: Output, calls: Sequence[Call], kind: str = "calls", **more: Any
) -> None:
    """Print the requests of ``calls`` as they would be sent, in order.

    ``more`` are additional keys of the document, whose kind is ``kind``.
    """
    if not output.for_people:
        shown = [
            {"doing": call.doing, "about": call.subject, **request_document(call)}
            for call in calls
        ]
        output.document(kind, {"dry_run": True, **more, "calls": shown})
        return
    if not calls:
        output.line("Nothing would be sent to the engine.")
    for number, call in enumerate(calls, 1):
        output.text(f"{call.doing}", hang=f"{number}. ")
        for line in request_lines(call):
            output.line(f"   {line}")


def request_lines(call: Call) -> list[str]:
    """Return the request of ``call`` for people: method, path, and the body."""
    form = wire_form(call)
    query = "&".join(f"{name}={value}" for name, value in form.query.items())
    first = f"{form.method} {form.path}{'?' if query else ''}{query}"
    return [first, *form.body.splitlines()]


def request_document(call: Call) -> dict[str, Any]:
    """Return the request of ``call`` for programs."""
    form = wire_form(call)
    return {
        "method": form.method,
        "path": form.path,
        "query": dict(form.query),
        "body": form.body,
    }


def progress(context: Context) -> Listener:
    """Return the listener that shows the progress of long work until the verb ends."""
    listener = engine_progress(context.output)
    context.at_end.callback(listener.close)
    return listener


class _Notes(Listener):
    """Prints notes while a verb reads from the engine."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def note(self, sentence: str) -> None:
        self._output.message(noted(sentence))


class Approver:
    """Asks before a verb changes something; it is the ``approve`` of RdmaEngine.

    ``lines`` returns the plan for the question, nothing if there is nothing to do;
    ``show`` shows it in a dry run. ``plan`` is the plan, once there is one.
    """

    def __init__(
        self,
        args: ChangeOptions,
        output: Output,
        lines: Callable[[Any], Iterable[str]],
        show: Callable[[Any], None],
    ) -> None:
        self._args, self._output = args, output
        self._lines, self._show = lines, show
        self.plan: Any = None

    def __call__(self, plan: Any) -> bool:
        """Return whether to carry out ``plan``. Raises Declined."""
        self.plan = plan
        if self._args.dry_run:
            self._show(plan)
            return False
        lines = list(self._lines(plan))
        if lines:
            approve(self._args, self._output, lines)
        return True


@contextmanager
def changing(args: Any, context: Context) -> Iterator[RdmaEngine]:
    """Yield the engine for a verb that changes something, with its progress here.

    Its jobs are among the engine's tasks, unless --no-job is given.
    """
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
    """Call ``act`` for one data center after the other, and print one document of
    ``kind``; return the worst exit code.

    ``centers`` are names by id; ``act`` gets the id, fills the content of the data
    center, and returns its exit code and whether to continue. One that is refused
    does not keep off the others; where it does not continue, the others are named as
    not started. ``none`` is printed without a data center.
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
