"""Names of the Kubernetes objects that the operator and a driver exchange plans and answers in.

Both take them from here: if they disagreed, the driver would seem not to answer.
"""

from __future__ import annotations

PLAN_KEY = "plan.json"
"""Key of the plan in its ConfigMap."""

ANSWER_KEY = "answer.json"
"""Key of the answer in its ConfigMap."""

STOP_KEY = "stop.json"
"""Key beside the plan: the driver is to end its queries at the edges of their batches."""

STOPPED_KEY = "stopped.json"
"""Key beside the answer: how far it is with that."""

APPLICATION_KEY = "application"
"""Key of the Spark application that a plan is for, or an answer is of; absent if it is not told.

Epochs count within an application. What names another application is of one that is gone.
"""

APPLICATION_LABEL = "spark-app-selector"
"""Spark's own label of an application's pods; its value is the application's id."""

STREAM_LABEL = "balancedstream.io/stream"
"""Label of all objects of a stream; its value is the stream's name."""


def plan_name(stream: str) -> str:
    """Name of the ConfigMap that carries a stream's plan to its driver.

    >>> plan_name("clicks")
    'clicks-plan'
    """
    return f"{stream}-plan"


def answer_name(stream: str) -> str:
    """Name of the ConfigMap that carries the driver's answer back.

    >>> answer_name("clicks")
    'clicks-answer'
    """
    return f"{stream}-answer"


def executor_selector(stream: str) -> str:
    """Label selector of a stream's executor pods; `spark-role` is Spark's own label.

    >>> executor_selector("clicks")
    'spark-role=executor,balancedstream.io/stream=clicks'
    """
    return f"spark-role=executor,{STREAM_LABEL}={stream}"


def application_selector(application: str) -> str:
    """Label selector of the executor pods of any Spark application, by Spark's own labels.

    >>> application_selector("spark-1f")
    'spark-role=executor,spark-app-selector=spark-1f'
    """
    return f"spark-role=executor,{APPLICATION_LABEL}={application}"


def is_other_application(told: str, own: str) -> bool:
    """Whether a plan or an answer belongs to another application; one that is not told does not.

    >>> is_other_application("spark-1", "spark-2"), is_other_application("", "spark-2")
    (True, False)
    """
    return bool(told and own) and told != own
