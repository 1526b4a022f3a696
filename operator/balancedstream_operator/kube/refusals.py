"""What to do about a request that the API server did not carry out, by its own words: pure.

The words are those of Kubernetes' API server, its admission plugins and its authorizer. Unknown
words get no advice: wrong advice is worse than none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about a request that was not carried out.

    Attributes:
        text: one clause for people; empty if nobody knows.
        passes: whether the cause of the refusal ends by itself.
    """

    text: str = ""
    passes: bool = False


_SPEC = "correct the field of the spec that this comes from, mostly in a pod template"

_KNOWN: tuple[tuple[str, Advice], ...] = (
    (
        r"because it is being terminated|namespaces \"[^\"]*\" not found",
        Advice(
            "the namespace is being deleted, and with it all of its pods; nothing is to be done",
            passes=True,
        ),
    ),
    (
        r"attempting to grant RBAC permissions not currently held",
        Advice(
            "the operator may grant drivers only what it may do itself: upgrade the chart's "
            "release, which grants that to the operator (rbac.create), or grant it yourself"
        ),
    ),
    (
        r"User \"[^\"]*\" cannot ",
        Advice(
            "the operator lacks this right: upgrade the chart's release, which grants it "
            "(rbac.create), or grant it yourself"
        ),
    ),
    (
        r"failed quota",
        Advice("let the spec say for all containers what the quota wants to be said"),
    ),
    (
        r"exceeded quota",
        Advice("raise the quota, let the stream ask for less, or wait until others need less"),
    ),
    (
        r"(maximum|minimum) \S+ usage per|limit to request ratio per",
        Advice("let the spec ask for what the LimitRange of the namespace allows, or change that"),
    ),
    (
        r"violates PodSecurity",
        Advice(
            "let the pod templates satisfy the Pod Security Standard that the namespace enforces"
        ),
    ),
    (
        r"failed calling webhook",
        Advice(
            "a webhook of the cluster does not answer: whoever runs it must mend it, and then "
            "this goes on by itself",
            passes=True,
        ),
    ),
    (
        r"admission webhook \"[^\"]*\" denied|ValidatingAdmissionPolicy '[^']*'",
        Advice(
            "a policy of the cluster refuses it: where the spec has what the policy wants, correct "
            "it there; otherwise ask who is in charge of the policy to except what the operator "
            "makes"
        ),
    ),
    (
        r"too large|must have at most|[Tt]oo long: may not be more than",
        Advice("make what is large in the spec smaller"),
    ),
    (r"failed to create typed patch object|is invalid: ", Advice(_SPEC)),
)

_UNAUTHORIZED, _TOO_LARGE, _INVALID = 401, 413, 422


def advise(status: int, words: str) -> Advice:
    """What to do about a request.

    >>> advise(403, 'pods "a" is forbidden: exceeded quota: shop').text[:15]
    'raise the quota'
    >>> advise(418, "no idea")
    Advice(text='', passes=False)
    """
    for pattern, advice in _KNOWN:
        if re.search(pattern, words):
            return advice
    if status == _UNAUTHORIZED:
        text = "the API server does not know the token of the operator's account; see its log"
        return Advice(text, passes=True)
    if status == _TOO_LARGE:
        return Advice("make what is large in the spec smaller")
    return Advice(_SPEC) if status == _INVALID else Advice()


def describe_refusal(words: str, advice: str, *, runs: bool) -> str:
    """What was refused, what that means for what runs, and what to do.

    Args:
        words: what was not done, and why, without a period.
        advice: what to do; empty if it is among the words, or nobody knows.
        runs: whether the driver runs.

    >>> describe_refusal("it was not applied", "raise the quota", runs=True)
    'it was not applied. Raise the quota. The driver that runs stays as it is'
    """
    sentences = [words, advice[:1].upper() + advice[1:]]
    sentences += ["The driver that runs stays as it is"] if runs else []
    return ". ".join(sentence.rstrip(".") for sentence in sentences if sentence)
