"""Others' interfaces to fsabs: each module here needs the library that it is named after, and nothing else does."""
