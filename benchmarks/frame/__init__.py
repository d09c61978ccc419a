"""How the benchmarks measure, what they start, and how they tell: nothing here knows what is measured."""
