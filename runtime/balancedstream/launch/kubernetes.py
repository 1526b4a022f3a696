"""The driver's side of Kubernetes: plans come in a ConfigMap, answers go out in another one.

No port is listened on: who may write a plan is decided by RBAC. A plan is learnt by a list and then
a watch from the list's `resourceVersion`; whatever goes wrong (410, a cut or half-open connection,
an expired token) leads to a fresh list after a pause with jitter, and the job runs on meanwhile.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kubernetes import client, config, watch

from balancedstream.core.wire.objects import (
    ANSWER_KEY,
    APPLICATION_KEY,
    PLAN_KEY,
    STOP_KEY,
    STOPPED_KEY,
    answer_name,
    executor_selector,
    is_other_application,
    plan_name,
)
from balancedstream.core.wire.plan import Answer
from balancedstream.core.wire.stopping import Stopped, find_stop
from balancedstream.errors import InvalidInputError

log = logging.getLogger(__name__)

WATCH_S = 60
"""The API server ends a watch after so long; a silent connection is given up a little later."""

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 10.0
RETRY_S = (1.0, 5.0)
"""Pause before a fresh list, drawn from this range, so that many drivers do not list at once."""

ANSWER_PAUSE_S = 1.0
"""At most one answer in this time: short batches would otherwise burden the API server."""


@dataclass(frozen=True, slots=True)
class StreamName:
    """A BalancedStream by namespace and name."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str, option: str = "--stream") -> StreamName:
        """Reads `NAMESPACE/NAME`; errors name the option that it was given by.

        Raises:
            InvalidInputError: not two names with a slash between them.

        >>> StreamName.parse("default/clicks")
        StreamName(namespace='default', name='clicks')
        """
        namespace, slash, name = text.partition("/")
        if not (namespace and slash and name) or "/" in name:
            message = f"{option}: must be NAMESPACE/NAME, such as default/clicks, not {text!r}"
            raise InvalidInputError(message)
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def connect(option: str = "--stream") -> client.CoreV1Api:
    """The API server as the pod's service account (its token is read again each minute).

    Outside a pod the current context of KUBECONFIG is used. Errors name the option that asks.

    Raises:
        InvalidInputError: there is neither.
    """
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        try:
            config.load_kube_config(client_configuration=configuration)
        except config.ConfigException as error:
            message = (
                f"{option}: no Kubernetes API server is known here ({error}). Nothing was started. "
                "This option is for a driver's pod, which the operator makes plans for."
            )
            raise InvalidInputError(message) from error
    return client.CoreV1Api(client.ApiClient(configuration))


def remove_leftover_executors(api: client.CoreV1Api, stream: StreamName) -> None:
    """Deletes the executor pods of the stream's previous Spark application.

    Kubernetes does not: a driver container that restarts keeps its pod, which owns them.
    """
    selector = executor_selector(stream.name)
    for pod in api.list_namespaced_pod(stream.namespace, label_selector=selector).items:
        try:
            api.delete_namespaced_pod(pod.metadata.name, stream.namespace)
        except client.ApiException as error:
            if error.status != 404:
                raise


class ClusterPlanChannel:
    """Brings plans and sends answers, each from a thread of its own; neither ever blocks the job.

    Args:
        api: the API server.
        stream: the BalancedStream whose plans the driver follows.
        application: Spark's id of the application, where a new driver is a new application that
            must not follow the plans of the last one; empty where plans outlive drivers.
        scales: whether the driver adds and removes executors; the answers say so.
    """

    def __init__(
        self,
        api: client.CoreV1Api,
        stream: StreamName,
        *,
        application: str = "",
        scales: bool = True,
    ) -> None:
        self._api = api
        self._stream = stream
        self._application = application
        self._scales = scales
        self._lock = threading.Lock()
        self._plan: str | None = None
        self._answer: Answer | None = None
        self._stop = ""
        self._stopped: Stopped | None = None
        self._leaves = False
        self._new_answer = threading.Event()
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._loop, args=(step,), name=name, daemon=True)
            for name, step in (
                ("balancedstream-plans", self._follow_plan),
                ("balancedstream-answers", self._send_next_answer),
            )
        ]

    def start(self) -> None:
        """Begins; returns at once."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends; a watch that is open ends with the process."""
        self._closed.set()
        self._new_answer.set()

    def take_plan(self) -> str | None:
        """The newest plan that came since the last call, as JSON; None if none did."""
        with self._lock:
            plan, self._plan = self._plan, None
        return plan

    def send_answer(self, answer: Answer) -> None:
        """Sends an answer, soon; one that was not sent yet is replaced."""
        with self._lock:
            self._answer = replace(answer, scales=self._scales)
        self._new_answer.set()

    def find_stop(self) -> str:
        """The request to end all queries that holds now, as JSON; empty for none."""
        with self._lock:
            return self._stop

    def tell_stopped(self, stopped: Stopped) -> None:
        """Sends how far that is, soon; nothing if the process is being ended."""
        with self._lock:
            if self._leaves:
                return
            self._stopped = stopped
        self._new_answer.set()

    def leave(self) -> None:
        """From now on queries end because the process does, in the middle of their batches."""
        with self._lock:
            self._leaves = True

    def start_anew(self) -> None:
        """Ends the process as Kubernetes would; the container starts again."""
        os.kill(os.getpid(), signal.SIGTERM)

    def is_held(self) -> bool:
        """Whether all queries have ended because that is asked for, and no new process may begin.

        The state is written anew when the pod is gone. Until then a process that ended would be
        started again, with its queries.
        """
        with self._lock:
            asked, stopped = find_stop(self._stop), self._stopped
        if asked is None or stopped is None:
            return False
        return stopped.checkpoints != () and stopped.id == asked.id

    def _loop(self, step: Callable[[], None]) -> None:
        while not self._closed.is_set():
            try:
                step()
            # Whatever it was, the job must not notice, and the next attempt starts from nothing.
            except Exception as error:
                reason = str(error).partition("\n")[0]
                log.warning("the API server cannot be reached, trying again: %s", reason)
                self._closed.wait(random.uniform(*RETRY_S))  # noqa: S311 - a pause

    def _follow_plan(self) -> None:
        """Lists the plan, then watches it until the watch ends."""
        # By field selector, because a Role cannot allow a list or watch of one object otherwise.
        select = {
            "namespace": self._stream.namespace,
            "field_selector": f"metadata.name={plan_name(self._stream.name)}",
        }
        listed = self._api.list_namespaced_config_map(
            **select, _request_timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S)
        )
        for config_map in listed.items:
            self._take_in(config_map)
        self._repair_answer()
        stream = watch.Watch()
        for event in stream.stream(
            self._api.list_namespaced_config_map,
            **select,
            resource_version=listed.metadata.resource_version,
            timeout_seconds=WATCH_S,
            # A half-open connection says nothing at all: the read times out.
            _request_timeout=(CONNECT_TIMEOUT_S, WATCH_S + READ_TIMEOUT_S),
        ):
            if event["type"] in {"ADDED", "MODIFIED"}:
                self._take_in(event["object"])
            if self._closed.is_set():
                stream.stop()

    def _take_in(self, config_map: Any) -> None:
        data = config_map.data or {}
        text = data.get(PLAN_KEY)
        if data:
            # One that somebody has emptied withdraws nothing: the operator fills it again.
            with self._lock:
                self._stop = data.get(STOP_KEY, "")
        if text and not is_other_application(data.get(APPLICATION_KEY, ""), self._application):
            with self._lock:
                self._plan = text

    def _repair_answer(self) -> None:
        """Sends the last answer again if somebody deleted or changed it.

        Answers are sent when they change, so nobody would, and the operator would wait for ever.
        """
        wanted = self._read_wanted()
        if not wanted:
            return
        try:
            found = self._api.read_namespaced_config_map(
                answer_name(self._stream.name),
                self._stream.namespace,
                _request_timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
            )
        except client.ApiException as error:
            # The operator makes it again.
            if error.status == 404:
                return
            raise
        data = found.data or {}
        if any(data.get(key) != text for key, text in wanted.items()):
            self._new_answer.set()

    def _read_wanted(self) -> dict[str, str]:
        """What the ConfigMap of the answer is to have."""
        with self._lock:
            answer, stopped = self._answer, self._stopped
        wanted = {} if answer is None else {ANSWER_KEY: answer.to_json()}
        return wanted | ({} if stopped is None else {STOPPED_KEY: stopped.to_json()})

    def _send_next_answer(self) -> None:
        self._new_answer.wait()
        self._new_answer.clear()
        data = self._read_wanted()
        if not data:
            return
        if self._application:
            data[APPLICATION_KEY] = self._application
        try:
            self._api.patch_namespaced_config_map(
                answer_name(self._stream.name),
                self._stream.namespace,
                {"data": data},
                _request_timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
            )
        except Exception:
            self._new_answer.set()
            raise
        self._closed.wait(ANSWER_PAUSE_S)


@contextmanager
def open_channel(
    stream: str,
    option: str = "--stream",
    *,
    application: str = "",
    scales: bool = True,
    removes_leftovers: bool = False,
) -> Iterator[ClusterPlanChannel]:
    """A channel that brings plans and sends answers for as long as it is open.

    `stream` is `NAMESPACE/NAME`; errors name the option that asks for it. Executors of the driver's
    predecessor can be removed first. The rest is as for `ClusterPlanChannel`.

    Raises:
        InvalidInputError: the name is none, or no API server is known here.
    """
    name = StreamName.parse(stream, option)
    api = connect(option)
    if removes_leftovers:
        remove_leftover_executors(api, name)
    plans = ClusterPlanChannel(api, name, application=application, scales=scales)
    plans.start()
    try:
        yield plans
    finally:
        plans.close()
