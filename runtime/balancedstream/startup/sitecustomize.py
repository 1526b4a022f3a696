"""What Python imports first in a process of `balancedstream run`, before the script begins.

Python looks for a module of this name on its path before it runs anything, so a process that has
this folder on its PYTHONPATH begins here, and then runs the script in its usual way: as `__main__`,
with its own arguments, folder, signals and exit status. This file leaves no trace of itself: a
`sitecustomize` of the user's, which is imported next, the script, and what they start find the
environment as it was.

Two kinds of processes have it:

- that of the script, which BALANCEDSTREAM_RUN tells the options;
- the Python workers of executors that `--local` starts, which BALANCEDSTREAM_FOLDER tells where the
  driver is. Spark starts such an executor in a folder of its own; those of `local[*]` are where the
  script is.

It uses the standard library only: workers may be of another Python.
"""

import os
import sys


def _leave_no_trace() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != here]
    left = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here in left:
        left.remove(here)
    if left:
        os.environ["PYTHONPATH"] = os.pathsep.join(left)
    else:
        os.environ.pop("PYTHONPATH", None)


def _import_the_users() -> None:
    ours = sys.modules.pop(__name__, None)
    try:
        import sitecustomize  # type: ignore[import-not-found] # noqa: F401, PLC0415
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        # Python's import of this module ends with a look at its place there.
        if __name__ not in sys.modules and ours is not None:
            sys.modules[__name__] = ours


def _begin() -> None:
    _leave_no_trace()
    folder = os.environ.pop("BALANCEDSTREAM_FOLDER", None)
    if folder is not None:
        try:
            os.chdir(folder)
        except OSError as error:
            sys.stderr.write(f"the script's folder {folder} cannot be entered: {error}\n")
    options = os.environ.pop("BALANCEDSTREAM_RUN", None)
    try:
        _import_the_users()
    finally:
        if options is not None:
            from balancedstream.launch.companion import accompany  # noqa: PLC0415

            accompany({"BALANCEDSTREAM_RUN": options})


# Tools import it under the name of its package.
if __name__ == "sitecustomize":
    _begin()
