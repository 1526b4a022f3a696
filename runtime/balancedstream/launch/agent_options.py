"""What an application's settings, `spark.balancedstream.*`, ask of the plugin's agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

from balancedstream.core.modes import switch_modes
from balancedstream.core.policy import Mode, Policy
from balancedstream.engine.driver import PLUGIN, PREFIX
from balancedstream.engine.session.settings import DYNAMIC_ALLOCATION
from balancedstream.errors import InvalidInputError
from balancedstream.launch.policies import read_policy

MODES: tuple[Mode, ...] = get_args(Mode)
STREAM = f"{PREFIX}stream"


@dataclass(frozen=True)
class AgentOptions:
    """What the application's settings ask for.

    Attributes:
        mode: whether it acts (auto) or only says what it would do (advise).
        policy: all knobs; nothing in it does more than `mode`.
        stream: `NAMESPACE/NAME` of the BalancedStream whose plans to follow; empty to decide here.
        application: Spark's id of the application.
        scales: whether it may add and remove executors; with dynamic allocation Spark does.
        metrics_port: where /metrics is served; None for nowhere.
        metrics_address: address that /metrics is served on.
        report_dir: where the report goes; None for no report.
        notes: what a person should know of it.
    """

    mode: Mode = "advise"
    policy: Policy = field(default_factory=Policy)
    stream: str = ""
    application: str = ""
    scales: bool = True
    metrics_port: int | None = None
    metrics_address: str = "127.0.0.1"
    report_dir: Path | None = None
    notes: tuple[str, ...] = ()


def read_options(settings: Mapping[str, str]) -> AgentOptions:
    """Reads the application's Spark settings.

    Raises:
        InvalidInputError: a setting is unknown or wrong; the message names it.

    >>> options = read_options({"spark.balancedstream.balance.act_above": "1.5"})
    >>> options.policy.balance.act_above, options.policy.balance.mode
    (1.5, 'advise')
    """
    own = {k.removeprefix(PREFIX): v for k, v in settings.items() if k.startswith(PREFIX)}
    for of_the_plugin in (PLUGIN.removeprefix(PREFIX), "page", "python", "sidecar"):
        own.pop(of_the_plugin, None)
    mode = _parse_mode(own.pop("mode", "advise"))
    file, port = own.pop("policy", ""), own.pop("metrics.port", "")
    stream = own.pop("stream", "")
    address, report = own.pop("metrics.address", "127.0.0.1"), own.pop("report", "")
    if port and not port.isdecimal():
        message = f"{PREFIX}metrics.port: must be a port, 0 to 65535, not {port!r}"
        raise InvalidInputError(message)
    for name in own:
        if "." not in name:
            message = f"{PREFIX}{name}: there is no such setting"
            raise InvalidInputError(message)
    policy, notes = read_policy(Path(file) if file else None, own), []
    # What the operator may do, the BalancedStream says.
    if mode == "advise" and not stream:
        policy = switch_modes(policy, "auto", "advise")
    scales = settings.get(DYNAMIC_ALLOCATION, "").lower() != "true"
    if not scales:
        policy = replace(policy, scaling=replace(policy.scaling, mode="off"))
        notes.append(
            f"{DYNAMIC_ALLOCATION}=true: Spark sets the number of executors, and partitions are "
            "placed on those that there are"
        )
    return AgentOptions(
        mode=mode,
        policy=policy,
        stream=stream,
        application=settings.get("spark.app.id", ""),
        scales=scales,
        metrics_port=int(port) if port else None,
        metrics_address=address,
        report_dir=Path(report) if report else None,
        notes=tuple(notes),
    )


def _parse_mode(text: str) -> Mode:
    for mode in MODES:
        if text == mode:
            return mode
    message = f"{PREFIX}mode: must be one of {', '.join(MODES)}, not {text!r}"
    raise InvalidInputError(message)
