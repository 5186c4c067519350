"""Metrics of the app in Prometheus' terms: requests, their latency, what waits, how large batches are, tokens.

They are counted where things happen and read at ``/metrics`` (`sbert_app.server.documents`). The registry is the
app's own: what the process itself uses is for the machine's exporter.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGISTRY = CollectorRegistry()
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

REQUESTS = Counter(
    "sbert_lab_requests", "Answered requests, by endpoint and status", ("endpoint", "status"), registry=REGISTRY
)
LATENCY = Histogram(
    "sbert_lab_request_seconds", "Time to answer a request", ("endpoint",), registry=REGISTRY, buckets=SECONDS
)
WAITING = Gauge("sbert_lab_waiting_requests", "Requests that wait for the next batch of a model", registry=REGISTRY)
BATCH = Histogram("sbert_lab_batch_requests", "Requests that were computed together", registry=REGISTRY, buckets=COUNTS)
TOKENS = Counter("sbert_lab_tokens", "Tokens that were read for /v1 requests, by model", ("model",), registry=REGISTRY)


def exposition() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
