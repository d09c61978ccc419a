"""`python -m tests [pytest's arguments]`: the tests, in parts; paths among the arguments choose some of them."""

import sys

from tests import parts
from tests.servers import guard

if __name__ == "__main__":
    guard.start()
    sys.exit(parts.main(sys.argv[1:]))
