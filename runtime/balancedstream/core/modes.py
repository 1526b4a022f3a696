"""Whether a policy acts, or only says what it would do."""

from __future__ import annotations

from dataclasses import replace

from balancedstream.core.policy import Mode, Policy


def switch_modes(policy: Policy, before: Mode, after: Mode) -> Policy:
    """The policy with another mode wherever it has a certain one; what is off stays off.

    Args:
        policy: of a stream or an application.
        before: the mode that is replaced.
        after: the mode in its place.

    >>> advised = switch_modes(Policy(), "auto", "advise")
    >>> advised.balance.mode, advised.scaling.mode
    ('advise', 'advise')
    """
    balance, scaling = policy.balance, policy.scaling
    if balance.mode == before:
        balance = replace(balance, mode=after)
    if scaling.mode == before:
        scaling = replace(scaling, mode=after)
    return replace(policy, balance=balance, scaling=scaling)
