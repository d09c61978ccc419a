"""From a URL to an FS: where a URL is split at its containers, `pfio.ini`, schemes, and roots that are reused."""
