"""Real servers for the tests, all on loopback: each module starts one, waits until it answers and stops it by pid."""
