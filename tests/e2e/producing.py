"""A producer with a rate that tests turn up and down while it runs.

It runs on this machine, on librdkafka: its C threads send thousands of rows a second for a few
percent of a core, which a Python client or another JVM in a pod would not.
"""

from __future__ import annotations

import bisect
import itertools
import json
import random
import threading
import time
from collections.abc import Collection
from types import TracebackType

from broker import Broker
from confluent_kafka import KafkaError, Message, Producer

TICK_S = 0.1


class ZipfKeys:
    """Keys `k0`, `k1`, … of which the first are the most frequent; the same for the same seed.

    Args:
        count: how many different keys.
        exponent: Zipf's s; 0 makes all keys equally frequent.
        seed: of the draw.
    """

    def __init__(self, count: int, exponent: float, seed: int) -> None:
        self._weights = [1 / rank**exponent for rank in range(1, count + 1)]
        self._cumulative = list(itertools.accumulate(self._weights))
        self._random = random.Random(seed)

    def favor(self, keys: Collection[str], factor: float) -> None:
        """From now on, these keys are so many times as frequent, beside the others, as before."""
        self._weights = [
            weight * factor if f"k{index}" in keys else weight
            for index, weight in enumerate(self._weights)
        ]
        self._cumulative = list(itertools.accumulate(self._weights))

    def draw(self) -> str:
        """The next key."""
        point = self._random.random() * self._cumulative[-1]
        return f"k{bisect.bisect_left(self._cumulative, point)}"


class PacedProducer:
    """Writes rows to a topic at a rate, from a thread of its own, until it is closed.

    Args:
        broker: where to.
        topic: must exist.
        keys: whose rows.
        seed: of the values.
        partitions: of the topic; rows go to them in turn, whatever their key, so that the
            source's partitions stay level and only the shuffle is skewed.
    """

    def __init__(
        self, broker: Broker, topic: str, keys: ZipfKeys, *, seed: int = 0, partitions: int = 6
    ) -> None:
        self._producer = Producer(
            # Errors only: a topic that is a second old has no leader yet, which is no news.
            {"bootstrap.servers": broker.here, "linger.ms": 50, "log_level": 3}
        )
        self._topic = topic
        self._keys = keys
        self._values = random.Random(seed)
        self._partitions = itertools.cycle(range(partitions))
        self._rate = 0.0
        self._sent = 0
        self._failures: list[str] = []
        self._closing = threading.Event()
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"producer-{topic}", daemon=True)

    def __enter__(self) -> PacedProducer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._thread.join()
        self.flush()
        # One that lives on, as in the traceback of a failure, complains when the broker goes.
        del self._producer

    @property
    def sent(self) -> int:
        """Rows handed over so far."""
        return self._sent

    def set_rate(self, rows_per_s: float) -> None:
        """From now on; 0 is silence."""
        self._rate = rows_per_s

    def send(self, rows: int) -> None:
        """So many rows at once."""
        with self._sending:
            for _ in range(rows):
                value = {
                    "value": self._values.randrange(1000),
                    "event_time_ms": time.time_ns() // 1_000_000,
                }
                self._producer.produce(
                    self._topic,
                    key=self._keys.draw(),
                    value=json.dumps(value),
                    partition=next(self._partitions),
                    on_delivery=self._note,
                )
            self._sent += rows
            self._producer.poll(0)

    def flush(self) -> None:
        """Returns when the broker has all rows.

        Raises:
            AssertionError: a row was not taken.
        """
        remaining = self._producer.flush(60)
        if remaining or self._failures:
            message = f"{remaining} rows not delivered; failures: {self._failures[:3]}"
            raise AssertionError(message)

    def _run(self) -> None:
        due = 0.0
        last_s = time.monotonic()
        while not self._closing.wait(TICK_S):
            now_s = time.monotonic()
            due += self._rate * (now_s - last_s)
            last_s = now_s
            rows = int(due)
            due -= rows
            self.send(rows)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(str(error))
