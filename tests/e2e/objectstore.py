"""An object store in a pod: an S3 server that keeps its objects as files, which tests read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from images import OBJECT_STORE
from kube import Kube, Manifest
from servers import describe_server
from storage import CLAIM, create_storage

NAME = "objectstore"
BUCKET = "streams"
PORT = 7070
NODE_PORT = 30096
_LABELS = {"app.kubernetes.io/name": NAME}
_SECRET = "objectstore-account"  # noqa: S105 - its name
_KEYS = {"AWS_ACCESS_KEY_ID": "e2e", "AWS_SECRET_ACCESS_KEY": "only-in-this-cluster"}


@dataclass(frozen=True)
class ObjectStore:
    """A running S3 server.

    Attributes:
        in_pods: its URL for pods.
        here: its URL for this machine.
        bucket: the bucket's folder on this machine.
    """

    in_pods: str
    here: str
    bucket: Path

    def describe_use(self, stream: str) -> Manifest:
        """What a person adds to a spec to keep a stream's checkpoint here.

        The two classes are those of Spark's `spark-hadoop-cloud` that write without renaming: a
        rename in an object store is a copy, and can be seen half done.
        """
        cloud = "org.apache.spark.internal.io.cloud"
        return {
            "checkpoints": {"uri": f"s3a://{BUCKET}/{stream}"},
            "sparkConf": {
                "spark.hadoop.fs.s3a.endpoint": self.in_pods,
                "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
                "spark.hadoop.fs.s3a.path.style.access": "true",
                "spark.hadoop.fs.s3a.committer.name": "magic",
                "spark.sql.sources.commitProtocolClass": f"{cloud}.PathOutputCommitProtocol",
                "spark.sql.parquet.output.committer.class": (
                    f"{cloud}.BindingParquetOutputCommitter"
                ),
                "spark.sql.streaming.checkpointFileManagerClass": (
                    f"{cloud}.AbortableStreamBasedCheckpointFileManager"
                ),
            },
            "driver": {"podTemplate": _with_account("driver")},
            "executors": {"podTemplate": _with_account("executor")},
        }

    def create_account(self, kube: Kube, namespace: str) -> None:
        """The Secret that `describe_use` names."""
        kube.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": _SECRET, "namespace": namespace},
                "stringData": _KEYS,
            }
        )


def _with_account(container: str) -> Manifest:
    account = [{"secretRef": {"name": _SECRET}}]
    return {"spec": {"containers": [{"name": container, "envFrom": account}]}}


def deploy_object_store(kube: Kube, namespace: str, shared_folder: Path) -> ObjectStore:
    """Starts it; returns when it answers pods."""
    storage = create_storage(kube, namespace, shared_folder)
    store = ObjectStore(
        f"http://{NAME}.{namespace}.svc:{PORT}",
        f"http://{kube.node_address}:{NODE_PORT}",
        storage.folder / BUCKET,
    )
    store.create_account(kube, namespace)
    kube.apply(*_manifests(namespace))
    kube.wait_for_rollout(namespace, NAME)
    return store


def _manifests(namespace: str) -> list[Manifest]:
    metadata = {"name": NAME, "namespace": namespace, "labels": _LABELS}
    account = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": _SECRET, "key": key}}}
        for name, key in zip(("ROOT_ACCESS_KEY_ID", "ROOT_SECRET_KEY"), _KEYS, strict=True)
    ]
    # A folder below the server's root is a bucket.
    start = f"mkdir -p /objects/{BUCKET} && exec versitygw --quiet posix /objects"
    return describe_server(
        metadata,
        ports=[{"name": "s3", "port": PORT, "nodePort": NODE_PORT}],
        pod={
            "containers": [
                {
                    "name": NAME,
                    "image": OBJECT_STORE,
                    "command": ["sh", "-c", start],
                    "env": account,
                    "ports": [{"containerPort": PORT}],
                    "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
                    "volumeMounts": [{"name": "objects", "mountPath": "/objects"}],
                }
            ],
            "volumes": [{"name": "objects", "persistentVolumeClaim": {"claimName": CLAIM}}],
        },
    )
