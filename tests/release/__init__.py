"""The wheel and the source distribution, built and tried in environments that hold nothing else: `make release`."""
