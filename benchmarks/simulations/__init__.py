"""Simulations: what no machine here can run is computed from what was measured."""
