"""Drives headless Chromium over its DevTools pipe. Needs only the package chromium.

Source: DevTools protocol, https://chromedevtools.github.io/devtools-protocol; --remote-debugging-pipe: messages of JSON, each with a
final NUL, on descriptors 3 (to the browser) and 4 (from it).
"""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

DEADLINE_SECONDS = 120


def program():
    """The path of Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One Chromium with one page. Use it as a context. Errors: RuntimeError."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="plugfest-browser-", ignore_cleanup_errors=True)
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # Descriptors 3 and 4 may be in use: the shell moves the pipe to them.
        command = f"exec 3<&{to_browser} 4>&{from_browser}; exec \"$0\" \"$@\""
        options = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self._folder.name}", "--no-first-run", "--disable-gpu",
                   "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-background-networking", "--disable-component-update",
                   # It opens only trusted files, and its sandbox needs a set-user-ID program or namespaces that
                   # containers forbid.
                   "--no-sandbox"]
        self._process = subprocess.Popen(["bash", "-c", command, program(), *options], pass_fds=(to_browser, from_browser),
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                         env={**os.environ, "HOME": self._folder.name}, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self._pending, self._number, self._session, self.problems = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        os.close(self._write)
        os.close(self._read)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        self._folder.cleanup()

    def _message(self):
        end = time.monotonic() + DEADLINE_SECONDS
        while b"\0" not in self._pending:
            if not select.select([self._read], [], [], max(0, end - time.monotonic()))[0]:
                raise RuntimeError(f"chromium did not answer within {DEADLINE_SECONDS} s")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise RuntimeError("chromium ended")
            self._pending += data
        message, self._pending = self._pending.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        """Records faults of a page: errors, refused scripts and styles, requests."""
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(parameters["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.problems.append(f"console: {parameters['args']}")
        elif event.get("method") == "Page.javascriptDialogOpening":
            self.problems.append("a dialog: " + parameters["message"])
        elif event.get("method") == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith("file:"):
            self.problems.append("a request: " + parameters["request"]["url"][:100])

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._write, text):]
        while True:
            answer = self._message()
            if answer.get("id") != self._number:
                self._note(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            return answer["result"]

    def open(self, file, width=1280, height=900, dark=False, fragment="", scale=1):
        """Shows a file in a window of this size, and waits until its scripts have run."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=pathlib.Path(file).resolve().as_uri() + fragment)
        # Evaluates in the new document once it has loaded; two frames later, observers of sizes have been called.
        self.value("new Promise(done => { const go = () => requestAnimationFrame(() => requestAnimationFrame(done));"
                   " document.readyState === 'complete' ? go() : addEventListener('load', go); })")

    def value(self, expression):
        """The value of an expression in the page, after its promises are resolved."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails'].get('exception', {}).get('description')}")
        return result["result"].get("value")

    def screenshot(self, file, whole=False, height=None):
        """Writes a PNG of the window, of the whole page, or of its first `height` pixels."""
        options = {}
        if whole or height:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": size["width"], "height": min(height or 1e9, size["height"], 16000), "scale": 1}}
        pathlib.Path(file).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **options)["data"]))
