"""What a script sees of Python and the shell, as small scripts that run with and without `run`.

The docs' page and the tests are made of this list.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ScriptCase:
    """A script that shows what it sees.

    Attributes:
        name: of the case.
        sees: what it is about, for the docs.
        text: the script; its standard output, its files and its end are compared.
        beside: other files of its folder, by name.
        start: what Python is to run: the script by its path, or something else.
        arguments: its own.
        stdin: what it reads.
        environment: what is set for it.
        flags: of Python.
        sent: signals that it gets once it has written a file `ready`, one after the other.
        from_elsewhere: whether it is started from another folder than its own.
    """

    name: str
    sees: str
    text: str
    beside: Mapping[str, str] = field(default_factory=dict)
    start: tuple[str, ...] = ("job.py",)
    arguments: tuple[str, ...] = ()
    stdin: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    sent: tuple[int, ...] = ()
    from_elsewhere: bool = False


def _ends(name: str, sees: str, text: str) -> ScriptCase:
    return ScriptCase(name, sees, f"import os, sys\nprint('begins')\n{text}\n")


READY_AND_WAIT = """
import pathlib, time
pathlib.Path("ready").touch()
try:
    for _ in range(600):
        time.sleep(0.1)
finally:
    print("finally", flush=True)
"""

NAMES = """
import builtins, inspect, json, os, pickle, sys, traceback
import __main__

class Kept:
    pass

print(json.dumps({
    "name": __name__, "file": __file__, "doc": __doc__, "package": __package__,
    "spec": str(__spec__), "builtins": __builtins__ is builtins,
    "loader": type(__loader__).__name__, "names": sorted(vars(__main__)),
    "main": __main__ is sys.modules["__main__"], "Kept": __main__.Kept is Kept,
    "pickled": pickle.loads(pickle.dumps(Kept())).__class__ is Kept,
    "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "path": sys.path,
    "flags": str(sys.flags), "warnoptions": sys.warnoptions, "executable": sys.executable,
    "stack": len(inspect.stack()), "back": sys._getframe().f_back is None,
    "folder": os.getcwd(), "process": os.getpid() == os.getpgid(0) or "in its parent's group",
    "meta_path": [getattr(f, "__name__", "") for f in sys.meta_path if "balanced" not in
                  type(f).__module__],
}, indent=1, default=str))
"""

FINDS = "import sys; import near; print(near.WHAT, __file__, sys.argv, sys.path[0])\n"

CASES: tuple[ScriptCase, ...] = (
    _ends("status", "the status of `sys.exit(3)`", "sys.exit(3)"),
    _ends("text", "the text of `sys.exit('...')`, and its status", "sys.exit('no topic is named')"),
    _ends("nothing", "the status of `sys.exit(None)`", "sys.exit(None)"),
    _ends("large", "the status of a number that is too large", "sys.exit(1000)"),
    _ends("huge", "the status of a number of 13 digits", "sys.exit(2**40 + 7)"),
    _ends("negative", "the status of a negative number", "sys.exit(-1)"),
    _ends("object", "the text of an object that it exits with", "sys.exit(('a', 1))"),
    _ends(
        "usage",
        "the words of `argparse`, and its status",
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--topic', required=True)\n"
        "p.parse_args()",
    ),
    _ends(
        "raises", "the traceback of what it raises", "def f():\n    raise ValueError('row 17')\nf()"
    ),
    _ends(
        "group",
        "the traceback of an exception with a cause, a note and a group",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    g = ExceptionGroup('all', [e])\n"
        "    g.add_note('a note')\n    raise g from e",
    ),
    _ends("syntax", "an error of its syntax", "def (:"),
    _ends("at once", "`os._exit`, which nothing comes after", "print('lost')\nos._exit(5)"),
    _ends("abort", "the signal that ends it from inside", "os.kill(os.getpid(), 9)"),
    ScriptCase(
        "handlers",
        "its `atexit` handlers, the last one first, and what they raise",
        "import atexit, logging\n"
        "logging.basicConfig(format='%(message)s')\n"
        "atexit.register(print, 'first registered', flush=True)\n"
        "atexit.register(int, 'x')\n"
        "atexit.register(logging.warning, 'last registered')\n"
        "raise SystemExit(4)\n",
    ),
    ScriptCase(
        "threads",
        "a thread that outlives the main one, a daemon that does not, and handlers after both",
        "import atexit, threading, time, sys\n"
        "def work():\n"
        "    time.sleep(0.5)\n"
        "    print('worked', threading.main_thread().is_alive(), flush=True)\n"
        "def serve():\n"
        "    time.sleep(60)\n"
        "    print('served', flush=True)\n"
        "atexit.register(print, 'handler', flush=True)\n"
        "threading.Thread(target=work).start()\n"
        "threading.Thread(target=serve, daemon=True).start()\n"
        "print('main is over', threading.active_count(), flush=True)\n"
        "sys.exit(6)\n",
    ),
    ScriptCase(
        "pool",
        "a pool of threads whose work is not done when the main thread ends",
        "from concurrent.futures import ThreadPoolExecutor\nimport time\n"
        "pool = ThreadPoolExecutor(2)\n"
        "for n in range(4):\n"
        "    pool.submit(lambda n: (time.sleep(0.1), print(n, flush=True)), n) if n == 3 else "
        "pool.submit(time.sleep, 0.1)\n",
    ),
    ScriptCase(
        "hooks",
        "its own `sys.excepthook`, `threading.excepthook` and `sys.unraisablehook`",
        "import sys, threading\n"
        "print(sys.excepthook is sys.__excepthook__, threading.excepthook is "
        "threading.__excepthook__, sys.unraisablehook is sys.__unraisablehook__)\n"
        "sys.excepthook = lambda kind, error, trace: print('alarm', kind, error, trace.tb_lineno, "
        "trace.tb_frame.f_back)\n"
        "threading.excepthook = lambda told: print('thread alarm', told.exc_value, flush=True)\n"
        "thread = threading.Thread(target=lambda: [].pop())\n"
        "thread.start()\n"
        "thread.join()\n"
        "raise ValueError('bad row 17')\n",
    ),
    ScriptCase(
        "names",
        "`__main__`, `__file__`, `sys.argv`, `sys.path`, `sys.flags`, its folder, its stack",
        NAMES,
        arguments=("--local", "2:2", "", "a b", "--", "-m"),
    ),
    ScriptCase(
        "long argument",
        "an argument that is as long as the system takes",
        "import sys\nprint(len(sys.argv[1]))\n",
        arguments=("x" * 130_000,),
    ),
    ScriptCase(
        "elsewhere",
        "the same, started from another folder, with a script beside it",
        "import os; os.chdir('/')\n" + FINDS + NAMES,
        beside={"near.py": "WHAT = 'beside'\n"},
        from_elsewhere=True,
    ),
    ScriptCase(
        "module",
        "a module of a package, as of `python -m`",
        "",
        beside={
            "pack/__init__.py": "",
            "pack/near.py": "WHAT = 'in the package'\n",
            "pack/__main__.py": "from pack import near; import sys\n"
            "print(near.WHAT, __file__, __spec__.name, __package__, sys.argv, sys.path[0])\n",
        },
        start=("-m", "pack"),
        arguments=("-m", "x"),
    ),
    ScriptCase(
        "folder",
        "a folder with a `__main__.py`",
        "",
        beside={"app/__main__.py": FINDS, "app/near.py": "WHAT = 'in the folder'\n"},
        start=("app",),
    ),
    ScriptCase(
        "archive",
        "an archive with a `__main__.py`",
        "",
        beside={"app.zip/__main__.py": FINDS, "app.zip/near.py": "WHAT = 'in the archive'\n"},
        start=("app.zip",),
    ),
    ScriptCase(
        "from input",
        "a script that comes through standard input",
        "",
        stdin="import sys\nprint(sys.argv, sys.path[0], '__file__' in globals())\n",
        start=("-",),
    ),
    ScriptCase(
        "unreadable",
        "a file that is no script",
        "\0\x01\0",
    ),
    ScriptCase(
        "input",
        "standard input, a line and the rest",
        "import sys\nprint(repr(input()), repr(sys.stdin.read()), sys.stdin.isatty())\n",
        stdin="one\ntwo\nthree",
    ),
    ScriptCase(
        "output",
        "encoding and buffering of its streams",
        "import sys\n"
        "for s in (sys.stdin, sys.stdout, sys.stderr):\n"
        "    print(s.name, s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), "
        "s.fileno(), type(s).__name__)\n"
        "print(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)\n"
        "sys.stderr.write('\\u2192 unbuffered\\n')\n",
    ),
    ScriptCase(
        "ascii",
        "an encoding that lacks a character",
        "print('\\u2192')\n",
        environment={"PYTHONIOENCODING": "ascii"},
    ),
    ScriptCase(
        "legacy locale",
        "a legacy locale",
        "import locale, sys\nprint(sys.getfilesystemencoding(), sys.stdout.encoding, sys.argv)\n"
        "print(locale.setlocale(locale.LC_CTYPE))\n",
        arguments=("caf\udce9",),
        environment={"LANG": "C", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ),
    ScriptCase(
        "warnings",
        "its warnings and their filters",
        "import sys, warnings\n"
        "print(warnings.filters, sys.warnoptions)\n"
        "warnings.warn('a warning')\n"
        "warnings.warn('of its caller', stacklevel=2)\n"
        "warnings.warn('old', DeprecationWarning)\n",
    ),
    ScriptCase(
        "flags",
        "flags of Python, such as `-W error` and `-X utf8`",
        "import sys, warnings\n"
        "print(sys.flags, sys.warnoptions, sys._xoptions, __debug__)\nwarnings.warn('fatal')\n",
        flags=("-O", "-W", "error", "-Xutf8", "-bb"),
    ),
    ScriptCase(
        "loggers",
        "loggers, their handlers and levels",
        "import logging, sys\n"
        "print(logging.root.handlers, logging.root.level, logging.lastResort.level, "
        "sorted(n for n in logging.root.manager.loggerDict if not n.startswith('balanced')))\n"
        "logging.warning('a line')\nlogging.info('none')\n",
    ),
    ScriptCase(
        "environment",
        "its environment, and that of what it starts",
        "import os, subprocess, sys\n"
        "show = 'import os, sys; print(sorted((k, v) for k, v in os.environ.items() if k not in "
        '("_", "PYSPARK_PYTHON", "SHLVL")), sys.path[1:], "sitecustomize" in sys.modules)\'\n'
        "exec(show.replace('\"sitecustomize\" in sys.modules', '0'))\n"
        "sys.stdout.flush()\n"
        "subprocess.run([sys.executable, '-c', show], check=True)\n",
        environment={"PYTHONPATH": "libs:/nowhere", "BALANCEDSTREAM": "kept"},
    ),
    ScriptCase(
        "users sitecustomize",
        "a `sitecustomize` of the user's own, and modules on PYTHONPATH",
        "import near, sys\nprint(near.WHAT, sys.modules['sitecustomize'].__file__, MARK)\n",
        beside={
            "libs/near.py": "WHAT = 'on the path'\n",
            "libs/sitecustomize.py": "import builtins\nbuiltins.MARK = 'customized'\n",
        },
        environment={"PYTHONPATH": "libs"},
    ),
    ScriptCase(
        "processes",
        "processes that it spawns and forks",
        "import multiprocessing, os, sys\n"
        "def work(n):\n"
        "    return n, __name__, sys.argv, os.path.basename(__file__)\n"
        "if __name__ == '__main__':\n"
        "    for way in ('spawn', 'fork'):\n"
        "        with multiprocessing.get_context(way).Pool(1) as pool:\n"
        "            print(way, pool.map(work, [1]))\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        sys.exit(3)\n"
        "    print(os.waitpid(child, 0)[1])\n",
    ),
    ScriptCase(
        "limits",
        "limits, hooks and modes of the interpreter",
        "import faulthandler, gc, sys, threading\n"
        "print(sys.getrecursionlimit(), sys.getswitchinterval(), gc.get_threshold(), "
        "gc.isenabled(), sys.gettrace(), sys.getprofile(), faulthandler.is_enabled(), "
        "threading.active_count(), threading.stack_size(), sys.dont_write_bytecode)\n",
    ),
    ScriptCase(
        "event loop",
        "an event loop, its tasks and its end",
        "import asyncio\n"
        "async def main():\n"
        "    await asyncio.sleep(0.05)\n"
        "    print(len(asyncio.all_tasks()))\n"
        "    raise KeyError('lost')\n"
        "asyncio.run(main())\n",
    ),
    ScriptCase("interrupt", "Ctrl-C", READY_AND_WAIT, sent=(signal.SIGINT,)),
    ScriptCase(
        "caught interrupt",
        "Ctrl-C that it catches",
        "try:\n    " + READY_AND_WAIT.replace("\n", "\n    ") + "\n"
        "except KeyboardInterrupt:\n    print('goes on')\nraise SystemExit(9)\n",
        sent=(signal.SIGINT,),
    ),
    ScriptCase("terminate", "SIGTERM", READY_AND_WAIT, sent=(signal.SIGTERM,)),
    ScriptCase("hang up", "SIGHUP", READY_AND_WAIT, sent=(signal.SIGHUP,)),
    ScriptCase(
        "own signal handlers",
        "its own handlers of signals, and those that it finds",
        "import signal, sys\n"
        "print([signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, "
        "signal.SIGPIPE, signal.SIGUSR1)])\n"
        "def bye(number, frame):\n    print('asked to end', number, flush=True)\n    sys.exit(12)\n"
        "signal.signal(signal.SIGTERM, bye)\n"
        "signal.signal(signal.SIGHUP, lambda number, frame: print('reloads', flush=True))\n"
        + READY_AND_WAIT,
        sent=(signal.SIGHUP, signal.SIGTERM),
    ),
    ScriptCase(
        "ignored signal",
        "a signal that it ignores",
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY_AND_WAIT,
        sent=(signal.SIGTERM, signal.SIGINT),
    ),
    ScriptCase(
        "interrupted thread",
        "Ctrl-C while only a thread runs",
        "import threading, time, pathlib\n"
        "threading.Thread(target=lambda: (time.sleep(1.5), print('worked', flush=True))).start()\n"
        "pathlib.Path('ready').touch()\n",
        sent=(signal.SIGINT,),
    ),
)
"""Scripts without Spark."""

SESSIONS = """
import atexit, glob, json, os, signal, sys, threading
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rules import rate

HERE = Path(__file__).parent
os.makedirs("in")
for n in range(3):
    with open(f"in/{n}.json", "w") as file:
        for i in range(n * 10, n * 10 + 10):
            file.write(json.dumps({"id": i, "k": i % 3}) + "\\n")
    os.utime(file.name, (1_700_000_000 + n,) * 2)


def show(*what):
    print(*what, flush=True)


def read(spark):
    rows = spark.readStream.schema("id long, k int").option("maxFilesPerTrigger", 1)
    return rows.json("in")


def see(k):
    import os, sys
    factor = json.load(open("settings.json"))["factor"]
    beside = json.load(open(HERE / "settings.json"))["factor"]
    names = sorted(n for n in os.environ if n.startswith("BALANCED"))
    at = os.path.relpath(os.getcwd(), HERE), os.path.relpath(sys.path[0], HERE)
    return json.dumps([rate(k), factor, beside, *at, names, os.environ.get("OWN")])


class Append:
    def open(self, partition, epoch):
        self.file = open(f"rows-{os.getpid()}.txt", "a")
        return True

    def process(self, row):
        self.file.write(f"{row.id}\\n")

    def close(self, error):
        self.file.close()


# A context of one's own, and a session on it.
conf = SparkConf().setAppName("own").set("spark.sql.shuffle.partitions", "2")
conf.set("spark.locality.wait", "7s").set("spark.executor.memory", "1100m")
conf.set("spark.executorEnv.OWN", "kept").set("spark.scheduler.mode", "FIFO")
given = sorted(conf.getAll())
context = SparkContext(conf=conf)
show("conf is as given", sorted(conf.getAll()) == given)
spark = SparkSession(context)
show("settings", [spark.conf.get(f"spark.{s}") for s in
     ("locality.wait", "executor.memory", "scheduler.mode", "sql.shuffle.partitions", "app.name")])
show("session", spark.sparkContext is context, SparkSession.getActiveSession() is not None)
show("builder gives it", SparkSession.builder.getOrCreate().sparkContext is context)
other = spark.newSession()
other.conf.set("spark.sql.shuffle.partitions", 5)
show("another", spark.conf.get("spark.sql.shuffle.partitions"), other.sparkContext is context)
context.setLocalProperty("spark.scheduler.pool", "mine")
show("pool", context.getLocalProperty("spark.scheduler.pool"))
show("workers see", sorted({r[0] for r in spark.range(6).select(F.udf(see)("id")).collect()}))
query = other.readStream.schema("id long, k int").json("in").writeStream.foreach(Append())
query = query.option("checkpointLocation", "checkpoint/rows").trigger(availableNow=True).start()
query.awaitTermination()
lines = sorted(int(line) for name in glob.glob("rows-*.txt") for line in open(name))
show("rows were written here", lines == list(range(30)))
for name in glob.glob("rows-*.txt"):
    os.remove(name)
spark.stop()

# Sessions of one builder that is kept, each stopped: one fails, one goes on, one finds nothing new.
builder = SparkSession.builder.appName("kept").config("spark.sql.shuffle.partitions", 2)
options = dict(builder._options)
for attempt in range(3):
    spark = builder.getOrCreate()
    seen = []

    def keep(rows, number):
        if attempt == 0 and number == 1:
            raise RuntimeError("the sink is away")
        seen.append((number, sorted(map(tuple, rows.collect()))))

    query = read(spark).groupBy("k").count().writeStream.queryName("kept").outputMode("update")
    query = query.option("checkpointLocation", "checkpoint/kept").trigger(availableNow=True)
    try:
        query.foreachBatch(keep).start().awaitTermination()
        show(attempt, "ended", seen)
    except Exception as error:
        show(attempt, type(error).__name__, "the sink is away" in str(error), seen)
    show("options are as given", builder._options == options)
    spark.stop()

# A thread waits for a query when the main one ends, and a handler uses Spark after that.
spark = builder.getOrCreate()
show("interrupt", callable(signal.getsignal(signal.SIGINT)))


def wait():
    query = read(spark).groupBy("k").count().writeStream.outputMode("update").queryName("late")
    query = query.option("checkpointLocation", "checkpoint/late").trigger(availableNow=True)
    query.foreachBatch(lambda rows, n: show(n, sorted(map(tuple, rows.collect())))).start()
    for running in spark.streams.active:
        running.awaitTermination()
    show("the query ended")


def last_words():
    Path("summary.txt").write_text(f"{spark.range(10).count()} of ten")
    show("summary written")


atexit.register(last_words)
threading.Thread(target=wait).start()
show("main is over")
sys.exit("quota exceeded: 12 of 10")
"""

STUCK = """
import atexit, pathlib, sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
atexit.register(print, "handler", flush=True)


def put(rows, number):
    rows.collect()
    if number == 1:
        pathlib.Path("ready").touch()
        time.sleep(1000)


rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
counts = rows.groupBy((rows.value % 5).alias("k")).count()
query = counts.writeStream.queryName("stuck").outputMode("update").foreachBatch(put)
query = query.option("checkpointLocation", "checkpoint").start()
try:
    query.awaitTermination()
finally:
    print("finally", flush=True)
"""

SPARK_CASES: tuple[ScriptCase, ...] = (
    ScriptCase(
        "sessions",
        "sessions that come about and stop in any way, the settings it wrote, the folder and the "
        "imports of Python functions, its queries' results, a thread and a handler that use Spark "
        "after its end",
        SESSIONS,
        beside={
            "rules.py": "def rate(k):\n    return {0: 2, 1: 3}.get(k % 3, 1)\n",
            "settings.json": '{"factor": 10}',
        },
    ),
    ScriptCase(
        "stuck and interrupted",
        "Ctrl-C while `foreachBatch` does not return",
        STUCK,
        sent=(signal.SIGINT,),
    ),
    ScriptCase(
        "stuck and terminated",
        "SIGTERM while a query runs: no line of the script comes after it",
        STUCK,
        sent=(signal.SIGTERM,),
    ),
)
"""Scripts with Spark."""
