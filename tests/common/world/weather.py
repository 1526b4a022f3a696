"""What the surroundings do at present; faults change it, and end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Weather:
    """The state of everything around operator and driver.

    Attributes:
        api_down: whether the API server answers nobody.
        api_errors: part of the operators' calls that fail before anything is done.
        api_lost: part of the operators' writes that are done, but whose answers are lost.
        api_throttles: whether it answers 429 to the operators, and asks to wait.
        api_stale_s: age of what the operators' lists and reads of pods say.
        forbidden: whether the operators' rights are gone.
        definition_gone: whether the cluster knows no streams.
        driver_clock_off_s: how far the driver's clock is ahead.
        refused_kind: of the operators' objects that a policy refuses; empty for none.
        list_age_s: age of what lists of streams say, if it is more than that; watches, which
            go on from there, tell nothing meanwhile.
        watch_lag_s: how much later watches bring an event.
        watch_loss: part of the events that no watch brings; the next list does.
        watch_repeats: part of the events that come twice.
        driver_cut: whether the driver does not reach the API server.
        controllers_stalled: whether nobody acts on StatefulSets and owners.
        node_lost: whether a pod that is deleted stays where it is.
        unschedulable: whether new driver pods find no node.
        quota: executors that the namespace has room for.
        slow_start: by what factor pods start slower.
        prometheus_down: whether Prometheus answers nobody.
        scrape_loss: part of the scrapes that bring nothing.
        sample_loss: part of the samples of a scrape that are missing.
        ingestion_lag_s: age of the newest samples that Prometheus shows.
        job_evictions: part of the pods of Jobs that are evicted before their end.
        job_refusals: part of them whose command refuses.
        preparation_failures: part of the loads ahead of moves that fail.
    """

    api_down: bool = False
    api_errors: float = 0.0
    api_lost: float = 0.0
    api_throttles: bool = False
    api_stale_s: float = 0.0
    forbidden: bool = False
    definition_gone: bool = False
    driver_clock_off_s: float = 0.0
    refused_kind: str = ""
    list_age_s: float = 0.0
    watch_lag_s: float = 0.0
    watch_loss: float = 0.0
    watch_repeats: float = 0.0
    driver_cut: bool = False
    controllers_stalled: bool = False
    node_lost: bool = False
    unschedulable: bool = False
    quota: int = 100
    slow_start: float = 1.0
    prometheus_down: bool = False
    scrape_loss: float = 0.0
    sample_loss: float = 0.0
    ingestion_lag_s: float = 0.0
    job_evictions: float = 0.0
    job_refusals: float = 0.0
    preparation_failures: float = 0.0

    def clear(self, name: str) -> None:
        """Sets one of them back to what it was at the start."""
        setattr(self, name, getattr(Weather, name))
