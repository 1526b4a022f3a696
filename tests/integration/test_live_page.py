"""The page of a run that goes on, in a real browser."""

from __future__ import annotations

import html
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from simulated_runs import Scenario, Simulation, new_history

from balancedstream.record.history import History
from balancedstream.report import REFRESH_S, render_live_page

CHROMIUM = next(
    (path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), ""
)

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not CHROMIUM and "CI" not in os.environ, reason="there is no Chromium"),
]

LOOKING = """<!DOCTYPE html>
<iframe id="page" src="/report" style="width: {width}px; height: 2000px; border: 0"></iframe>
<pre id="seen"></pre>
<img src="/later" alt="">
<script>
const frame = document.getElementById("page");
const looks = [];
function leaves(text) {{
  const box = text.getBoundingClientRect(), svg = text.ownerSVGElement.getBoundingClientRect();
  return box.left < svg.left - 1 || box.right > svg.right + 1 || box.bottom > svg.bottom + 1;
}}
frame.addEventListener("load", () => {{
  const page = frame.contentDocument, view = page.documentElement;
  const charts = [...page.querySelectorAll("svg")];
  looks.push({{
    text: page.body.innerText,
    charts: charts.length,
    undrawn: charts.filter((svg) => svg.getBoundingClientRect().height === 0).length,
    outside: [...page.querySelectorAll("svg text")].filter(leaves).map((text) => text.textContent),
    too_wide: view.scrollWidth - view.clientWidth,
  }});
  document.getElementById("seen").textContent = JSON.stringify(looks);
}});
</script>
"""
"""Loads the page into a frame, as a window of that width, and looks at it each time it is loaded.
The picture comes late, so that the browser waits for a refresh."""


@contextmanager
def serving(history: History, width: int) -> Iterator[str]:
    """Serves the page, and the one that looks at it; gives the URL of the latter."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/later":
                time.sleep(REFRESH_S + 2)
            pages = {"/report": render_live_page(history), "/": LOOKING.format(width=width)}
            self.send_response(200 if self.path in pages else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(pages.get(self.path, "").encode())

        def log_message(self, *arguments: Any) -> None:
            """Says nothing: the output is of the test."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def look(url: str, profile: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """What a browser shows, each time it has loaded the page, and what it complains of."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    ended = subprocess.run(
        [CHROMIUM, *options, "--enable-logging=stderr", "--dump-dom", url],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    seen = ended.stdout.partition('<pre id="seen">')[2].partition("</pre>")[0]
    complaints = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(seen)), complaints


@pytest.mark.parametrize("width", [1280, 600, 400])
def test_a_browser_draws_the_run_so_far_and_fetches_it_again(width: int, tmp_path: Path) -> None:
    history = new_history()
    Simulation(Scenario(batches=30, grow_at=20), history).run()
    with serving(history, width) as url:
        looks, complaints = look(url, tmp_path)
    assert complaints == []
    assert len(looks) >= 2, "the first page, and one after a refresh"
    for seen in looks:
        assert "flights.py" in seen.pop("text")
        assert seen.pop("charts") >= 3
        assert seen == {"undrawn": 0, "outside": [], "too_wide": 0}
