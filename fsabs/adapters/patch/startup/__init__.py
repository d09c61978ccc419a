"""A folder for PYTHONPATH: its `sitecustomize` applies `$FSABS_PATCH` in a program and in all that it starts."""
