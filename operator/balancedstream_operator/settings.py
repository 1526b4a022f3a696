"""The settings of an installation: what its command line says, and what holds for all streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from balancedstream.core.money import Price


@dataclass(frozen=True, slots=True)
class Caps:
    """The limits over all streams; 0 is none.

    Attributes:
        executors: of all streams.
        cores: of all executors.
        memory_mib: of all executors, heap and overhead.
    """

    executors: int = 0
    cores: int = 0
    memory_mib: int = 0

    @property
    def are_set(self) -> bool:
        """Whether there is any."""
        return any((self.executors, self.cores, self.memory_mib))

    def __str__(self) -> str:
        """For people.

        >>> str(Caps(executors=9, memory_mib=2048))
        '9 executors, 2048 MiB'
        """
        parts = ((self.executors, "executors"), (self.cores, "cores"), (self.memory_mib, "MiB"))
        return ", ".join(f"{limit} {what}" for limit, what in parts if limit)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an installation.

    Attributes:
        prometheus_url: of the operator's own Prometheus, for streams that name none; empty if the
            operator has none.
        prometheus_labels: that all series in the operator's own Prometheus must have.
        allowed_urls: URLs that streams may name, with all below them; `*` allows any.
        read_credentials: reads the credentials of the operator's own Prometheus, by the keys of a
            Secret. It is called for each decision, because they may have been rotated; no other
            server gets them.
        forbids_escalation: whether the operator refuses specs that give pods more rights than its
            own templates do.
        allowed_accounts: ServiceAccounts that pods may run as even then.
        namespaces: that the operator watches; "" for the whole cluster.
        sigv4_region: region of AWS to sign requests to the operator's own Prometheus for; empty for
            no signature.
        asks_queries: whether the operator asks the queries of streams.
        caps: limits of executors over all streams.
        price: of an executor of any stream; None without one.
    """

    prometheus_url: str = ""
    prometheus_labels: tuple[tuple[str, str], ...] = ()
    allowed_urls: tuple[str, ...] = ()
    read_credentials: Callable[[], Mapping[str, str]] = dict
    forbids_escalation: bool = False
    allowed_accounts: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ("",)
    sigv4_region: str = ""
    asks_queries: bool = False
    caps: Caps = Caps()
    price: Price | None = None
