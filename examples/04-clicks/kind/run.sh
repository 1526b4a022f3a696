#!/usr/bin/env bash
# What docs/kind.md tells to type, in this order, up to the end of the cluster.
# CI runs it; it needs docker, kind, helm and kubectl.
set -euxo pipefail
cd "$(dirname "$0")/../../.."
kind create cluster --name balancedstream
docker build --target operator --tag balancedstream-operator:0.2.0 .
docker build --target spark --tag balancedstream-spark:0.2.0 .
docker build --tag clicks:1 examples/04-clicks
kind load docker-image --name balancedstream balancedstream-operator:0.2.0 clicks:1
helm install prometheus prometheus --version 28.10.0 \
  --repo https://prometheus-community.github.io/helm-charts \
  --namespace monitoring --create-namespace \
  --values examples/04-clicks/kind/prometheus.yaml --wait
helm install balancedstream charts/balancedstream \
  --namespace balancedstream-system --create-namespace \
  --set prometheus.url=http://prometheus-server.monitoring.svc --wait
kubectl apply -f examples/04-clicks/kind/clicks.yaml
kubectl wait bst/clicks --for=condition=Ready --timeout=10m
kubectl wait bst/clicks --for=condition=MetricsAvailable --timeout=5m
kubectl get bst clicks -o wide
kubectl get pods
kubectl scale bst clicks --replicas 3
kubectl wait bst/clicks --for=jsonpath='{.status.executors}'=3 --timeout=5m
kubectl scale bst clicks --replicas 0
kubectl describe bst clicks
kind delete cluster --name balancedstream
