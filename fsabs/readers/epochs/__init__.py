"""Epochs as pure functions: the batches of an epoch, of a mixture, and packed windows; there are no processes here."""
