# SPDX-License-Identifier: GPL-2.0-or-later
"""Run promtool, Prometheus and node_exporter of Debian 12, on the machine itself.

They are fetched once and never installed, because their packages start daemons.
"""

from __future__ import annotations

import functools
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlencode

from lab import packages
from lab.cache import cache_folder
from lab.problem import LabProblem

_PACKAGES = ("prometheus", "prometheus-node-exporter")
# Both answer within a second on an idle machine.
_PATIENCE_S = 60.0


@functools.cache
def fetched() -> Path:
    """Return the folder with the unpacked packages. Raises LabProblem without apt."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return packages.fetched(folder, *_PACKAGES)


def promtool(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool with ``given`` as its standard input."""
    return subprocess.run(
        [str(fetched() / "usr/bin/promtool"), *words],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


class Server:
    """A running server: ``port`` on the loopback address, and the file of its log."""

    def __init__(self, port: int, log: Path) -> None:
        self.port, self.log = port, log

    def get(self, path: str) -> str:
        """Return what it answers. Raises OSError if it does not."""
        url = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            return str(answer.read().decode())

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        alerts = json.loads(self.get("/api/v1/alerts"))["data"]["alerts"]
        firing = (one["labels"] for one in alerts if one["state"] == "firing")
        return {labels["alertname"] for labels in firing}

    def fired(self, begin_s: float, step_s: int) -> set[str]:
        """Return those that have fired since then, in seconds since 1970, looking every
        ``step_s`` seconds.
        """
        query = {
            "query": 'ALERTS{alertstate="firing"}',
            "start": begin_s,
            "end": time.time(),
            "step": step_s,
        }
        answer = json.loads(self.get(f"/api/v1/query_range?{urlencode(query)}"))
        return {one["metric"]["alertname"] for one in answer["data"]["result"]}


@contextmanager
def node_exporter(
    folder: Path, procfs: Path, collectors: Sequence[str], textfiles: Path
) -> Iterator[Server]:
    """Run node_exporter with these ``collectors`` only. ``procfs`` stands for /proc,
    ``textfiles`` is the folder of its textfile collector. Its log is in ``folder``.
    """
    program = str(fetched() / "usr/bin/prometheus-node-exporter")
    words = [
        "--collector.disable-defaults",
        *(f"--collector.{name}" for name in collectors),
        f"--path.procfs={procfs}",
        f"--collector.textfile.directory={textfiles}",
    ]
    with _running(program, words, folder / "node_exporter.log") as server:
        yield server


@contextmanager
def prometheus(
    folder: Path, target: Server, rules: Path, interval_s: int
) -> Iterator[Server]:
    """Run Prometheus, which scrapes ``target`` every ``interval_s`` seconds and
    evaluates the file ``rules`` as often. Its data and log are in ``folder``.
    """
    config = folder / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: {interval_s}s, evaluation_interval: "
        f"{interval_s}s}}\n"
        f"rule_files: ['{rules}']\n"
        "scrape_configs: [{job_name: node, static_configs: "
        f"[{{targets: ['127.0.0.1:{target.port}']}}]}}]\n"
    )
    with _serving(folder, config) as server:
        yield server


@contextmanager
def of_samples(folder: Path, samples: str) -> Iterator[Server]:
    """Run Prometheus with ``samples`` as its data, and nothing to scrape. They are in
    OpenMetrics' text format, with times, in any order of series; no `# EOF`.
    Its data and log are in ``folder``. Raises LabProblem if promtool refuses them.
    """
    text, config = folder / "samples.txt", folder / "prometheus.yml"
    text.write_text(f"{samples}# EOF\n")
    config.write_text("global: {}\n")
    words = ("tsdb", "create-blocks-from", "openmetrics", str(text))
    done = promtool(*words, str(folder / "data"))
    if done.returncode:
        raise LabProblem(f"promtool: {done.stderr}")
    # By default, what is older than 15 days is removed.
    with _serving(folder, config, "--storage.tsdb.retention.time=100y") as server:
        yield server


def _serving(folder: Path, config: Path, *words: str) -> AbstractContextManager[Server]:
    program = str(fetched() / "usr/bin/prometheus")
    storage = f"--storage.tsdb.path={folder / 'data'}"
    words = (f"--config.file={config}", storage, *words)
    # It answers requests for metrics before it answers queries.
    return _running(program, words, folder / "prometheus.log", "/-/ready")


@contextmanager
def _running(
    program: str, words: Sequence[str], log: Path, ready: str = "/metrics"
) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(port, log)
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [program, *words, f"--web.listen-address=127.0.0.1:{port}"],
            stdout=stream,
            stderr=stream,
            cwd=log.parent,
        )
    try:
        _wait_for(process, server, ready)
        yield server
    finally:
        process.terminate()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], server: Server, path: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        try:
            server.get(path)
        except (OSError, urllib.error.URLError):
            time.sleep(0.1)
        else:
            return
    raise LabProblem(f"it does not answer: {server.log.read_text()[-2000:]}")
