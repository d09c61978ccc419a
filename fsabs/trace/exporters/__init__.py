"""A trace for other tools: OpenTelemetry (`otel`), pyarrow and pandas (`frames`)."""
