"""A trace for other tools: OpenTelemetry (`otel`)."""
