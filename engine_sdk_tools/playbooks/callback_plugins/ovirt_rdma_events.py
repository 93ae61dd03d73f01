# SPDX-License-Identifier: GPL-2.0-or-later
"""Print the result of each task on each host as a line of JSON, for ansible_run.

The lines are like those of ``ansible-runner run --json``, which is used where it is
installed. Loaded by ansible-playbook; runs with its Python.
"""

import json
import sys
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
    name: ovirt_rdma_events
    type: stdout
    short_description: one line of JSON per result
    description: Prints the result of each task on each host as a line of JSON.
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]  # it has no types
    """Prints results; all else goes to stderr, as Ansible's own warnings do."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "ovirt_rdma_events"

    def v2_runner_on_ok(self, result: Any) -> None:
        """Print a success."""
        self._print("runner_on_ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        """Print a failure."""
        self._print("runner_on_failed", result, ignore_errors=ignore_errors)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        """Print that there was no connection."""
        self._print("runner_on_unreachable", result)

    def _print(self, event: str, result: Any, **more: Any) -> None:
        # ansible-core 2.19 has names without the underscore, and keeps these.
        task = result._task
        data = {
            "host": result._host.get_name(),
            # As ansible-runner; get_name() puts the role in front.
            "task": task.name or task.action,
            "task_action": task.action,
            "res": result._result,
            **more,
        }
        line = json.dumps({"event": event, "event_data": data}, default=str)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
