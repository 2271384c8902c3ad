"""Counters and times for Prometheus."""

from __future__ import annotations

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from refactorgnn.server.service import PredictorService

MEDIA_TYPE = CONTENT_TYPE_LATEST
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """What a server counts, in a registry of its own.

    Args:
        service: Whose model and graph are described; their sizes are read whenever someone looks.
    """

    def __init__(self, service: PredictorService) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self._requests = Counter(
            "refactorgnn_requests", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "refactorgnn_request_seconds",
            "Seconds from a request's headers to the end of its answer.",
            ["route"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.in_flight = Gauge("refactorgnn_requests_in_flight", "Requests under way.", registry=registry)
        self.questions = Counter("refactorgnn_questions", "Questions answered, also in batches.", registry=registry)
        self.additions = Counter("refactorgnn_additions", "Additions of entities and facts.", registry=registry)
        sizes = {
            "entities": lambda: service.predictor.graph.num_entities,
            "relations": lambda: service.predictor.graph.num_relations,
            "facts": lambda: service.predictor.graph.num_triples,
        }
        for name, size in sizes.items():
            Gauge(f"refactorgnn_{name}", f"{name.capitalize()} in the graph.", registry=registry).set_function(size)
        card = service.about()
        about = {"dataset": card["dataset"]["name"], "model": card["model"]["name"]}
        about |= {key: str(card["model"][key]) for key in ("scorer", "dim", "num_parameters")}
        Info("refactorgnn_model", "The model that answers.", registry=registry).info(about)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered; ``method`` and ``route`` must come from a short list, never from a client."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def render(self) -> bytes:
        """All of it, in Prometheus's text format."""
        return generate_latest(self._registry)
