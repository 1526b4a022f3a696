"""Settings of which an agent is no use: the application runs on, and one line says what to do."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from patience import PATIENCE_S
from submitted import PLUGIN, build_jar, make_python, submit

APP = Path(__file__).with_name("refused_app.py")
OWN = "spark.balancedstream."
RUNS_ON = "he application runs on, not balanced"
OTHER_PYTHON = (
    f"Set {OWN}python to a Python 3.11 or newer with balancedstream in it, or run the agent in a "
    f"sidecar ({OWN}sidecar)"
)

pytestmark = [pytest.mark.integration, pytest.mark.turn]


def test_whatever_is_wrong_the_application_runs_on_and_one_line_says_what_to_do(
    tmp_path: Path,
) -> None:
    empty = make_python(tmp_path / "empty")
    no_python = shutil.which("false")
    policy = tmp_path / "policy.yaml"
    policy.write_text("balance: {act_abov: 1.5}")
    twice = {"spark.plugins": f"{PLUGIN},{PLUGIN}"}
    cases = [
        (twice | {f"{OWN}python": "/no/python3"}, ("/no/python3", OTHER_PYTHON)),
        ({f"{OWN}python": str(empty)}, (f"{empty}, has no balancedstream", "pip install")),
        ({f"{OWN}policy": str(policy)}, ("balance.act_abov: unknown field", f"in {policy}")),
        ({f"{OWN}balance.act_abov": "2"}, ("balance.act_abov: no such knob", "`balancedstream po")),
        ({f"{OWN}sidecar": "/no/folder"}, (f"{OWN}sidecar=/no/folder cannot", "Mount a volume")),
        ({f"{OWN}python": str(no_python)}, ("the last time of 4", str(no_python), OTHER_PYTHON)),
    ]
    for number, (settings, _) in enumerate(cases):
        (tmp_path / f"{number}.settings").write_text(json.dumps(settings))
    given = {"spark.jars": str(build_jar()), "spark.master": "local[1]"}
    with closing(submit(APP, tmp_path, given)) as app:
        for number in range(len(cases)):
            app.find(RUNS_ON, number + 1)
            (tmp_path / f"{number}.stop").touch()
        assert app.process.wait(PATIENCE_S) == 0, app.read_log()
    lines = re.findall(rf"^balancedstream: .*{RUNS_ON}.*", app.read_log(), re.M)
    for line, (_, words) in zip(lines, cases, strict=True):
        assert all(word in line for word in words), line
    others = re.findall(rf"^balancedstream: (?!.*{RUNS_ON}).*", app.read_log(), re.M)
    again = "the agent ended with status 1 and starts again in {} s; the application runs on"
    assert others == [f"balancedstream: {again.format(pause)}" for pause in (1, 5, 25)]
