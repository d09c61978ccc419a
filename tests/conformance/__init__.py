"""Every FS of ours, held to the conformance kit."""
