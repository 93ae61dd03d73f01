# SPDX-License-Identifier: GPL-2.0-or-later
"""Find what the engine does not survive, or does not report, in tasks. Pure.

The engine reads the events of ansible-runner in its own way, so tasks that work under
ansible-playbook can fail the installation of a host, or end it without a failure. Lines
are those of ovirt-engine 4.5.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Optional

from ovirt_rdma.host.system.lazy import LazyModule

if TYPE_CHECKING:
    import yaml
else:
    yaml = LazyModule("yaml")

FAIL, WARN = "FAIL", "WARN"

# RunnerJsonNode.formatDebugMessage
_SEVERITY_WORDS = re.compile(r"NORMAL|WARNING|ERROR|ALERT")
_IN_BRACKETS = re.compile(r"\[(NORMAL|WARNING|ERROR|ALERT)\] .")
_LISTS = ("block", "rescue", "always")
_NAME_OF_THE_ENGINE = "Fetch vdsm id"
_ENDS = ("end_play", "end_host", "end_batch", "clear_host_errors")


class Trap(NamedTuple):
    """A finding: ``line`` of the file, from 1; ``task`` is its name, "" for none."""

    id: str
    verdict: str
    line: int
    task: str
    sentence: str
    fix: str


def traps_of(nodes: list[yaml.Node]) -> list[Trap]:
    """Return what the engine does not survive, or report, in the tasks ``nodes``."""
    seen: set[int] = set()
    return [trap for node in nodes for trap in _of_task(node, seen)]


class IncludedRole(NamedTuple):
    """A role that a task includes by a fixed name."""

    line: int
    task: str
    role: str


def included_roles(nodes: list[yaml.Node]) -> list[IncludedRole]:
    """Return the roles that are looked for only during the run. If one is missing, the
    run ends there, and the engine reports no failure (AnsibleRunnerClient.java:57-77).
    """
    found = []
    for node in nodes:
        for child in _tasks_in(node, set()):
            keys = {str(key.value): value for key, value in child.value}
            arguments = _module(keys, "include_role")
            if isinstance(arguments, yaml.MappingNode):
                inner = {str(key.value): value for key, value in arguments.value}
                role = _value(inner, "name") or _value(inner, "role")
                if role and "{{" not in role:
                    line = child.start_mark.line + 1
                    found.append(IncludedRole(line, _value(keys, "name"), role))
    return found


def missing_role(included: IncludedRole) -> Trap:
    """Return the finding for a role that the engine does not find."""
    return Trap(
        "deploy-hook-role-missing",
        FAIL,
        included.line,
        included.task,
        f"includes the role {included.role}, which is not found: the run would end "
        "there, and the engine would report the host as installed",
        "install the role, for example below /usr/share/ansible/roles",
    )


def _tasks_in(node: yaml.Node, seen: set[int]) -> Iterator[yaml.MappingNode]:
    if id(node) in seen or not isinstance(node, yaml.MappingNode):
        return
    seen.add(id(node))
    yield node
    for key, value in node.value:
        if str(key.value) in _LISTS and isinstance(value, yaml.SequenceNode):
            for one in value.value:
                yield from _tasks_in(one, seen)


def _of_task(node: yaml.Node, seen: set[int]) -> Iterator[Trap]:
    if id(node) in seen:  # an alias, which may be inside itself
        return
    seen.add(id(node))
    if not isinstance(node, yaml.MappingNode):
        yield _trap(
            (node, ""), "no-task", FAIL, "is no task", "begin it with '- name:'"
        )
        return
    keys = {str(key.value): value for key, value in node.value}
    name = _value(keys, "name")
    if "rescue" in keys:
        # AnsibleRunnerClient.java:158-167: the failed task has no ignore_errors.
        yield _trap(
            (node, name),
            "rescue",
            WARN,
            "has a rescue, but a failed task before it ends the installation anyway",
            "use failed_when: false or ignore_errors: true",
        )
    for key in _LISTS:
        inner = keys.get(key)
        if isinstance(inner, yaml.SequenceNode):
            for one in inner.value:
                yield from _of_task(one, seen)
    if name == _NAME_OF_THE_ENGINE:
        # InstallVdsInternalCommand.setVdsmId takes its output for the host's id.
        yield _trap(
            (node, name),
            "name",
            FAIL,
            "has the name of a task whose output the engine reads",
            "give it another name",
        )
    if _module(keys, "meta") is not None and _free(keys, "meta") in _ENDS:
        yield _trap(
            (node, name),
            "end",
            WARN,
            f"ends the play ({_free(keys, 'meta')}), and the tasks after it",
            "put it at the end of the file",
        )
    yield from _debug(node, name, keys)


def _debug(node: yaml.Node, name: str, keys: dict[str, yaml.Node]) -> Iterator[Trap]:
    arguments = _module(keys, "debug")
    if arguments is None:
        return
    why = ""
    message: Optional[yaml.Node] = None
    if isinstance(arguments, yaml.MappingNode):
        inner = {str(key.value): value for key, value in arguments.value}
        message = inner.get("msg")
        if "var" in inner:
            why = "shows a variable"
        elif message is not None and not isinstance(message, yaml.ScalarNode):
            why = "shows a list"
    if any(key == "loop" or key.startswith("with_") for key in keys):
        why = "is repeated"
    text = str(message.value) if isinstance(message, yaml.ScalarNode) else ""
    if "\n" in text.strip():
        why = "has several lines"
    if _SEVERITY_WORDS.search(text) and not _IN_BRACKETS.search(text):
        why = "has one of the words NORMAL, WARNING, ERROR, ALERT"
    if why:
        yield _trap(
            (node, name),
            "debug",
            FAIL,
            f"is a debug task that {why}; the engine cannot read its output, and the "
            "installation fails",
            "use a message of one line, or write the text into the name of a task",
        )


def _trap(task: tuple[yaml.Node, str], id: str, verdict: str, *texts: str) -> Trap:
    node, name = task
    line = node.start_mark.line + 1
    sentence, fix = texts
    return Trap(f"deploy-hook-{id}", verdict, line, name, sentence, fix)


def _module(keys: dict[str, yaml.Node], name: str) -> Optional[yaml.Node]:
    for prefix in ("", "ansible.builtin.", "ansible.legacy."):
        if prefix + name in keys:
            return keys[prefix + name]
    return None


def _free(keys: dict[str, yaml.Node], name: str) -> str:
    node = _module(keys, name)
    return str(node.value).strip() if isinstance(node, yaml.ScalarNode) else ""


def _value(keys: dict[str, yaml.Node], name: str) -> str:
    node = keys.get(name)
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
