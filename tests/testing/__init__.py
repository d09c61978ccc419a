"""Tests of `fsabs.testing` itself."""
