"""What lies on this machine's disk: files opened safely and replaced whole, folders of ours, indexes that are kept."""
