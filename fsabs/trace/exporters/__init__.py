"""A trace for other tools: OpenTelemetry (`otel`), Prometheus (`prometheus`), pyarrow and pandas (`frames`)."""
