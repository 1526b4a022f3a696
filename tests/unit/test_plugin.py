"""What the plugin for Spark works out before its agent starts."""

from __future__ import annotations

from pathlib import Path

from java_programs import needs_compiler, run_program

SOURCES = sorted((Path(__file__).parents[2] / "spark-plugin" / "src").rglob("*.java"))

PROGRAM = """
package io.balancedstream;

import java.lang.reflect.Method;
import org.apache.spark.SparkConf;

/** Prints the page for each pair of the exporter's address and the driver's host. */
final class Program {
  public static void main(String[] values) throws Exception {
    Method method = Plugin.class.getDeclaredMethod("nameLivePage", SparkConf.class);
    method.setAccessible(true);
    for (int i = 0; i < values.length; i += 2) {
      SparkConf conf = new SparkConf(false)
          .set("spark.balancedstream.metrics.port", "9404")
          .set("spark.balancedstream.metrics.address", values[i])
          .set("spark.driver.host", values[i + 1]);
      System.out.println(method.invoke(null, conf));
    }
  }
}
"""

PAGES = {
    ("127.0.0.1", "driver"): "http://127.0.0.1:9404/report",
    ("::1", "driver"): "http://[::1]:9404/report",
    ("[::1]", "driver"): "http://[::1]:9404/report",
    ("0.0.0.0", "driver"): "http://driver:9404/report",  # noqa: S104 - all addresses
    ("::", "fd00::9"): "http://[fd00::9]:9404/report",
    ("[::]", "[fd00::9]"): "http://[fd00::9]:9404/report",
    ("", "fd00::9"): "http://[fd00::9]:9404/report",
}


@needs_compiler
def test_the_live_page_is_named_as_a_browser_finds_it_by_ipv4_and_ipv6(tmp_path: Path) -> None:
    addresses = [value for pair in PAGES for value in pair]
    assert run_program(PROGRAM, SOURCES, tmp_path, *addresses) == [*PAGES.values()]
