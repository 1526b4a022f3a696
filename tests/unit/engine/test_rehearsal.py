"""The first load of an executor, which it makes of a state of its own."""

from __future__ import annotations

from pathlib import Path

from java_programs import needs_compiler, run_program

import balancedstream.engine.jvm as classes

SOURCES = [Path(classes.__file__).with_name(f"{n}.java") for n in ("Rehearsal", "StoreChanges")]

PROGRAM = """
package io.balancedstream;

import java.io.File;
import org.apache.spark.util.ShutdownHookManager;

/** Is killed in the middle of a rehearsal, as soon as Spark would remove its folder at the end. */
final class Program {
  public static void main(String[] parents) throws Exception {
    Thread rehearsal = new Thread(() -> {
      try {
        Rehearsal.run();
      } catch (Exception problem) {
        problem.printStackTrace();
      }
    });
    rehearsal.start();
    while (rehearsal.isAlive()) {
      for (String parent : parents) {
        for (File folder : new File(parent).listFiles()) {
          if (!ShutdownHookManager.hasShutdownDeleteDir(folder)) continue;
          System.out.println(folder);
          System.out.flush();
          Runtime.getRuntime().halt(0);
        }
      }
    }
  }
}
"""


@needs_compiler
def test_an_executor_that_ends_in_a_rehearsal_leaves_nothing_outside_its_own_folders(
    tmp_path: Path,
) -> None:
    of_executor, of_all = tmp_path / "executor", tmp_path / "tmp"
    of_executor.mkdir()
    of_all.mkdir()
    known = run_program(
        PROGRAM,
        SOURCES,
        tmp_path,
        of_executor,
        of_all,
        options=[f"-Djava.io.tmpdir={of_all}"],
        environment={"SPARK_EXECUTOR_DIRS": f"{of_executor}:/elsewhere"},
    )
    (folder,) = of_executor.glob("balancedstream-rehearsal*")
    assert known == [str(folder)]
    assert not list(of_all.glob("balancedstream-rehearsal*"))
