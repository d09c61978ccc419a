"""Rows, tokens and mixtures."""
