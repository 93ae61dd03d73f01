# SPDX-License-Identifier: GPL-2.0-or-later
"""Show pages in headless Chromium, over its debugging pipe: no package is needed.

Packages of npm that tests use are fetched once, and never committed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Optional, Union

# On a machine with emulated guests, a page of 250 hosts takes a while.
_LIMIT_S = 180.0


class Page:
    """A page in a browser; each answer of the browser is waited for."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number, self._unread = 0, b""
        self._session: dict[str, str] = {}
        # What the console shows: messages, exceptions, and what could not be loaded.
        self.console: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def open(self, path: Union[Path, str], width: int, *, dark: bool = False) -> None:
        """Show a file or an address, in a window of ``width`` pixels."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        url = path if isinstance(path, str) else path.resolve().as_uri()
        # Another page, also if only the part after # differs.
        self._ask("Page.navigate", url="about:blank")
        self.console.clear()
        self._ask("Page.navigate", url=url)
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def value_of(self, script: str, frame: str = "") -> Any:
        """Return what an expression of JavaScript has as its value, or will have; in
        the frame whose address contains ``frame``, with its document but not its
        scripts.
        """
        words: dict[str, Any] = {"expression": script}
        if frame:
            words["contextId"] = self._context(frame)
        found = self._ask(
            "Runtime.evaluate", **words, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"])[:2000])
        return found["result"].get("value")

    def until(self, script: str, frame: str = "") -> None:
        """Wait until an expression is true; it may have no frame before."""
        end = time.monotonic() + 20.0
        while True:
            with contextlib.suppress(LookupError, RuntimeError):
                if self.value_of(script, frame):
                    return
            if time.monotonic() > end:
                raise TimeoutError(f"never: {script}")
            time.sleep(0.05)

    def _context(self, frame: str) -> int:
        tree = self._ask("Page.getFrameTree")["frameTree"]
        for child in tree.get("childFrames", ()):
            if frame in child["frame"]["url"]:
                world = {"frameId": child["frame"]["id"], "worldName": "tests"}
                made = self._ask("Page.createIsolatedWorld", **world)
                return int(made["executionContextId"])
        raise LookupError(f"no frame has {frame} in its address")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key of the keyboard, and release it."""
        words = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self._ask("Input.dispatchKeyEvent", **down, **words)
        self._ask("Input.dispatchKeyEvent", type="keyUp", **words)

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
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: Optional[str], said: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.console.append(str(said["exceptionDetails"])[:1000])
        elif method == "Runtime.consoleAPICalled":
            self.console.append(str(said["args"])[:1000])
        elif method == "Log.entryAdded":
            entry = said["entry"]
            self.console.append(f"{entry['source']}: {entry['text']}")


def package_of_npm(name: str) -> Optional[Path]:
    """Return the archive of a package such as axe-core-4.14.1, fetched once; None if
    npm cannot be asked.
    """
    folder = Path(__file__).parents[2] / ".cache/npm"
    archive = folder / f"{name}.tgz"
    npm = shutil.which("npm")
    if not archive.exists() and npm:
        folder.mkdir(parents=True, exist_ok=True)
        words = [npm, "pack", "--silent", "@".join(name.rsplit("-", 1))]
        subprocess.run(words, cwd=folder, check=False, capture_output=True)
    return archive if archive.exists() else None


def axe_core() -> Optional[str]:
    """Return the script of axe-core; None if npm cannot be asked."""
    archive = package_of_npm("axe-core-4.14.1")
    if archive is None:
        return None
    with tarfile.open(archive) as opened:
        script = opened.extractfile("package/axe.min.js")
        return script.read().decode() if script else None


# With the script on a page: what axe-core finds, a line each.
VIOLATIONS = """axe.run().then(found => found.violations.map(one =>
    one.id + ": " + one.help + ": " + one.nodes.slice(0, 3).map(node => node.html)))"""


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
