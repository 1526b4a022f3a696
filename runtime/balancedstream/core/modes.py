"""Whether a policy acts, or only says what it would do."""

from __future__ import annotations

from dataclasses import replace

from balancedstream.core.policy import Mode, Policy


def switch_modes(policy: Policy, before: Mode, after: Mode) -> Policy:
    """The policy with the mode `after` wherever it has the mode `before`.

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
