"""Builds the plugin's jar into the wheel."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))

from build_jar import NoCompilerError, build_jar

REQUIRED = "BALANCEDSTREAM_JAR_REQUIRED"
"""Set where a wheel is built for others, as for a release."""


class JarHook(BuildHookInterface):
    """Called by hatchling before it collects the files of a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the jar; where there is no compiler, the package does without it.

        Args:
            version: `editable` or `standard`.
            build_data: what the wheel consists of.

        Raises:
            NoCompilerError: there is no compiler, and the wheel is for others.
        """
        try:
            jar = build_jar()
        except NoCompilerError as error:
            if os.environ.get(REQUIRED):
                raise
            self.app.display_warning(
                f"{error}: this wheel has no spark-plugin.jar, so `balancedstream plugin` refuses, "
                "and all else works. Do not give it to others."
            )
            return
        build_data["artifacts"].append(str(jar.relative_to(self.root)))
