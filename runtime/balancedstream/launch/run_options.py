"""What `balancedstream run` was asked for, and how it gets to the script's process."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from balancedstream.core.keys.text import KeyNaming
from balancedstream.core.policy import Policy
from balancedstream.engine.session.local import LocalExecutors

OPTIONS_VARIABLE = "BALANCEDSTREAM_RUN"
"""Environment variable with the options; `startup/sitecustomize.py` takes it out again."""


@dataclass(frozen=True)
class RunOptions:
    """What `balancedstream run` was asked for; its help describes each option.

    None stands for what was not asked for. `app` and `args` are the script and its own arguments.
    """

    app: str
    args: tuple[str, ...] = ()
    is_module: bool = False
    local: LocalExecutors | None = None
    policy: Policy = field(default_factory=Policy)
    report_dir: Path | None = None
    record_dir: Path | None = None
    metrics_port: int | None = None
    metrics_address: str = "127.0.0.1"
    hot_keys: KeyNaming = "plain"
    stream: str | None = None
    baseline_batches: int = 0

    def to_environment(self) -> dict[str, str]:
        """The variables by which a process that starts learns the options.

        It has the script's arguments already, and a variable cannot have the length of theirs.
        """
        without = replace(self, args=())
        return {OPTIONS_VARIABLE: base64.b64encode(pickle.dumps(without)).decode()}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RunOptions:
        """The options that `to_environment` of the same installation wrote, without arguments.

        >>> options = RunOptions("job.py", baseline_batches=5)
        >>> RunOptions.from_environment(options.to_environment()) == options
        True
        """
        # This process's own parent wrote it, who may run anything here.
        found: RunOptions = pickle.loads(base64.b64decode(environment[OPTIONS_VARIABLE]))  # noqa: S301
        return found
