"""Other libraries' public names on fsabs, for code that changes only its imports."""
