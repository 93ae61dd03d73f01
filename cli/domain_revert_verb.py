# SPDX-License-Identifier: GPL-2.0-or-later
"""``domain revert``: a conversion is taken back, to what it found at its begin."""

from __future__ import annotations

import contextlib
import shlex
from argparse import Namespace
from dataclasses import replace

from ovirt_rdma.cli.conversion_run import (
    Run,
    no_other_under_way,
    stands_converted,
    stored_of,
)
from ovirt_rdma.cli.engine_session import door_of, opened
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.engine_sdk_tools.conversion.plan import plan_revert
from ovirt_rdma.engine_sdk_tools.conversion.state import CONVERT, REVERTED, ROLLED_BACK
from ovirt_rdma.engine_sdk_tools.conversion.state_file import StateFolder
from ovirt_rdma.engine_sdk_tools.engine_facts import Domain, Engine
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.names import NameProblem, domain_named
from ovirt_rdma.engine_sdk_tools.refusals import Refused

_KIND = "domain-revert"


def revert(words: Namespace, screen: Screen) -> int:
    """Take back what was recorded; with other domains that were converted with it."""
    with opened(words) as session, contextlib.ExitStack() as locked:
        engine = read_engine(session)
        run = Run(words, screen, session, door_of(words, engine))
        domain = _domain(engine, run.folder, words)
        if domain.data_center is None:
            raise Refused(
                [f"{domain.name} is attached to no data center: no host mounts it"],
                "attach it first",
            )
        center = domain.data_center
        if not words.dry_run:
            locked.enter_context(run.folder.only_run(center))
        found = run.recorded(engine, center)
        state = stored_of(found, [domain])
        if state is None:
            raise Refused(
                [f"this machine has no record of a conversion of {domain.name}"],
                "run it where the conversion was run, as the same user; or convert it: "
                f"ovirt-rdma domain convert {shlex.quote(domain.name)} --to tcp",
            )
        no_other_under_way(found, state)
        over = state.stage in (REVERTED, ROLLED_BACK)
        if over and not stands_converted(state):
            if screen.for_people:
                screen.text(f"Nothing to revert: {state.title} is as before.")
            else:
                names = [one.name for one in state.domains]
                screen.document(_KIND, {"domains": names, "stage": state.stage})
            return 0
        state = replace(state, batch=words.batch)
        reports = None if state.blind else run.reports(engine, state.data_center)
        plan = plan_revert(state, engine, reports)
        for sentence in () if words.dry_run else plan.warnings:
            screen.message(f"warning: {sentence}")
        return run.do(plan, _KIND)


def _domain(engine: Engine, folder: StateFolder, words: Namespace) -> Domain:
    """Return the domain that is named, or what is recorded of one that is gone: its
    hosts and the others that were converted with it can still go back.

    Raises NameProblem where there is neither.
    """
    try:
        return domain_named(engine, words.name, words.datacenter)
    except NameProblem:
        for center in engine.data_centers:
            for state in folder.states(center.id):
                for one in state.domains:
                    if state.kind == CONVERT and words.name in (one.name, one.id):
                        return Domain(one.id, one.name, "data", "nfs", center.id)
        raise
