"""Names of the Kubernetes objects that the operator and a driver exchange plans and answers in.

Both take them from here: if they disagreed, the driver would seem not to answer.
"""

from __future__ import annotations

PLAN_KEY = "plan.json"
"""Key of the plan in its ConfigMap."""

ANSWER_KEY = "answer.json"
"""Key of the answer in its ConfigMap."""

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
