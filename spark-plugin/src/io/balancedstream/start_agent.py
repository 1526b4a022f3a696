"""Starts the agent; the plugin hands this text to the interpreter, which may be any Python.

Exit status 78 tells the plugin that another start would end the same way.
"""

import glob
import os
import sys

VERSION = os.environ["BALANCEDSTREAM_PLUGIN_VERSION"]
CLONE = "Install it there, in a clone of BalancedStream's repository at version %s: " % VERSION
INSTALL = CLONE + "pip install ."
INSTALL_ALL = CLONE + "pip install '.[spark]'"
ELSEWHERE = (
    "Set spark.balancedstream.python to a Python 3.11 or newer with balancedstream in it, or run "
    "the agent in a sidecar (spark.balancedstream.sidecar)."
)


def give_up(problem, remedy):
    """Ends this process with one line."""
    words = sys.executable, problem, remedy
    sys.stderr.write(
        "balancedstream: the agent's Python, %s, %s. "
        "The application runs on, not balanced. %s\n" % words
    )
    sys.exit(78)


def start():
    """Runs the agent; returns its exit status."""
    if sys.version_info < (3, 11):
        give_up("is version %d.%d, which is too old" % sys.version_info[:2], ELSEWHERE)
    # A file in the working directory must not stand in for a module.
    sys.path = [folder for folder in sys.path if folder]
    # What the interpreter lacks of PySpark, the driver has.
    spark = os.path.join(os.environ.get("SPARK_HOME", ""), "python")
    sys.path += [spark] + glob.glob(os.path.join(spark, "lib", "py4j-*-src.zip"))
    try:
        from balancedstream import __version__ as version
    except ImportError:
        give_up("has no balancedstream", INSTALL + " Or: " + ELSEWHERE)
    if version != VERSION:
        give_up("has balancedstream %s, and the plugin is %s" % (version, VERSION), INSTALL)
    try:
        from balancedstream.launch.agent import main
    except ImportError as error:
        give_up("lacks a package (%s)" % error, INSTALL_ALL)
    return main()


sys.exit(start())
