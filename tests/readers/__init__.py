"""Tests of the shard readers."""
