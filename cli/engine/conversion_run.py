# SPDX-License-Identifier: GPL-2.0-or-later
"""Carry out ``domain convert``, ``revert`` and ``heal`` over RdmaEngine.

This is what the three share: host access, the question before a change, the progress,
and the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional

from ovirt_rdma.cli.approval import approve
from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.engine.arguments import ChangesDomains
from ovirt_rdma.cli.engine.conversion_report import (
    plan_document,
    plan_lines,
    result_document,
    show_plan,
    show_result,
)
from ovirt_rdma.cli.engine.session import (
    in_each,
    open_session,
    progress,
    rdma_engine,
)
from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.automation import RdmaEngine
from ovirt_rdma.engine_sdk_tools.conversion.model import ConversionState
from ovirt_rdma.engine_sdk_tools.conversion.outcome import exit_code
from ovirt_rdma.engine_sdk_tools.conversion.plan import ConversionPlan
from ovirt_rdma.engine_sdk_tools.domains.list import domains_to_verify
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.host.errors import UsageProblem

# Gets the engine and the arguments that all three have.
Act = Callable[[RdmaEngine, dict[str, Any]], Optional[ConversionState]]


def run(args: ChangesDomains, context: Context, kind: str, act: Act) -> int:
    """Run ``act``, and print the plan of a dry run or the result; return the exit
    code.
    """
    with _session(args, context) as session:
        content: dict[str, Any] = {}
        code = _one(args, context, session, act, content)
    if not context.output.for_people:
        context.output.document(kind, content)
    return code


def run_in_each(
    args: ChangesDomains,
    context: Context,
    kind: str,
    names: Sequence[str],
    act: Callable[..., Optional[ConversionState]],
) -> int:
    """Run ``act`` for each data center of the domains ``names``, as :func:`run`; it
    also gets the data center and the names of its domains.
    """
    output = context.output
    with _session(args, context) as session:
        engine = read_engine(session)
        centers: dict[str, list[str]] = {}
        for domain in domains_to_verify(engine, names, args.datacenter):
            centers.setdefault(str(domain.data_center), []).append(domain.name)
        named = {center.id: center.name for center in engine.data_centers}

        def heal(center: str, content: dict[str, Any]) -> tuple[int, bool]:
            chosen = centers[center] if names else ()
            one: Act = lambda rdma, how: act(rdma, how, center, chosen)  # noqa: E731
            return _one(args, context, session, one, content), True

        found = {center: named.get(center, center) for center in centers}
        none = "There is no NFS storage domain in a data center"
        return in_each(found, heal, output, kind, none=none)


def _session(args: ChangesDomains, context: Context) -> Any:
    if args.facts_dir is not None and not args.dry_run:
        raise UsageProblem(
            "facts-dir-needs-dry-run",
            "--facts-dir needs --dry-run: it gives no access to hosts",
            "give --ssh-key or --inventory",
        )
    return open_session(args, context.output)


def _one(
    args: ChangesDomains,
    context: Context,
    session: EngineSession,
    act: Act,
    content: dict[str, Any],
) -> int:
    """Run ``act``; print for people, and fill ``content`` for programs."""
    output = context.output
    planned: list[ConversionPlan] = []

    def ask(plan: ConversionPlan) -> bool:
        planned.append(plan)
        if args.dry_run:
            content.update(plan_document(plan))
            if output.for_people:
                show_plan(plan, output)
            return False
        approve(args, output, plan_lines(plan))
        return True

    session.listener = progress(context)
    rdma = rdma_engine(args, context, session, tasks=not args.no_job, noted=False)
    how = {
        "approve": ask,
        "take_over": args.take_over,
        "dry_run": args.dry_run,
        "batch": args.batch,
    }
    state = act(rdma, how)
    if state is None:
        return 0
    content.update(result_document(state, done=bool(planned)))
    if output.for_people:
        show_result(state, output, done=bool(planned))
    return exit_code(state) if planned else 0
