"""Item caches, with PFIO's interface: tables of numbered items in memory, in a file, and in a web server."""
