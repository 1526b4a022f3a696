"""The program of the agent, `python -m balancedstream.agent`: the plugin of Spark starts it."""

from __future__ import annotations

import sys

from balancedstream.launch.agent import main

if __name__ == "__main__":
    sys.exit(main())
