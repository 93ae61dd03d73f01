# SPDX-License-Identifier: GPL-2.0-or-later
"""Show pages in headless Chromium, over its debugging pipe: no package is needed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# On a machine with emulated guests, a page of 250 hosts takes a while.
_LIMIT_S = 180.0


class Page:
    """A page in a browser; each answer of the browser is waited for."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number, self._unread = 0, b""
        self._session: dict[str, str] = {}
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        self._ask("Page.enable")

    def open(self, path: Path, width: int, *, dark: bool = False) -> None:
        """Show a file, in a window of ``width`` pixels."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        self._ask("Page.navigate", url=path.resolve().as_uri())
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def value_of(self, script: str) -> Any:
        """Return what an expression of JavaScript has as its value, or will have."""
        found = self._ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"])[:2000])
        return found["result"].get("value")

    def picture(self, height: int = 0) -> bytes:
        """Return the page as PNG: whole, or its first ``height`` pixels."""
        box = self._ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "scale": 1, "width": box["width"]}
        clip["height"] = height or min(box["height"], 8000)
        shot = self._ask(
            "Page.captureScreenshot", clip=clip, captureBeyondViewport=True
        )
        return base64.b64decode(shot["data"])

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        os.write(self._to, json.dumps({**asked, **self._session}).encode() + b"\0")
        while (answer := self._message()).get("id") != self._number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _message(self) -> dict[str, Any]:
        end = time.monotonic() + _LIMIT_S
        while b"\0" not in self._unread:
            if not select.select([self._from], [], [], end - time.monotonic())[0]:
                raise TimeoutError(f"chromium did not answer within {_LIMIT_S:.0f} s")
            block = os.read(self._from, 1 << 16)
            if not block:
                raise RuntimeError("chromium has ended")
            self._unread += block
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


def chromium() -> str:
    """Return the command, or "" if this machine has none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or ""


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """Yield a page of a browser that ends with this block."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [chromium(), "--headless", "--disable-gpu", "--hide-scrollbars"]
        command += ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
        if os.geteuid() == 0:
            command.append("--no-sandbox")
        # Chromium reads 3 and writes 4.
        renumbered = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        program = subprocess.Popen(
            ["bash", "-c", renumbered, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Page(ours_out, ours_in)
        finally:
            os.close(ours_out)
            os.close(ours_in)
            program.kill()
            program.wait()
