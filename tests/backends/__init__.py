"""Tests of the backends: what each store has that the conformance kit does not know of."""
