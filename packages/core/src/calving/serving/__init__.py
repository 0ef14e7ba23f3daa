"""The status of a sink over HTTP: metrics, health, Kafka Connect's REST, and a page.

Every answer is made from one immutable ``Status``, which the loops replace as a whole. So a request reads no half of
a change, takes no lock, and cannot slow a loop down::

    GET /healthz, /readyz   503 while the process hangs, or is not ready
    GET /metrics            metrics.py declares each metric once, for Prometheus, OpenTelemetry and the manual
    GET /api/...            views.py, for the page
    GET /connectors/...     connect.py, as Kafka Connect answers

``access`` decides who may ask; pauses and other changes need ``iceberg.http.token``.
"""
