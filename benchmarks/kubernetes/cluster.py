"""The cluster of the end-to-end tests, with what they put on it, for benchmarks."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(REPOSITORY / folder) for folder in ("tests/e2e", "tests/common", "benchmarks")]

import images  # noqa: E402
from clusters import open_cluster  # noqa: E402
from sites import Site  # noqa: E402
from streams import Stream  # noqa: E402


@contextmanager
def open_site() -> Iterator[Site]:
    """The cluster of this machine, with the images of this working tree."""
    with open_cluster(keep=False) as cluster:
        images.build_project_images(cluster.node)
        images.build_app_image(cluster.node)
        yield Site(cluster, keep=False)


@contextmanager
def open_stream(site: Site, name: str, *, on_object_store: bool) -> Iterator[tuple[Stream, str]]:
    """A handle on a stream in a namespace of its own, and an empty topic of its own."""
    unique = f"{name}-{uuid.uuid4().hex[:6]}"
    store = site.object_store if on_object_store else None
    with site.storage(unique) as storage, site.topic(unique) as topic:
        if store:
            store.create_account(site.kube, unique)
        yield Stream(site.kube, storage, name, store), topic
