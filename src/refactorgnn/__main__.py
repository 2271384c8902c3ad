"""``python -m refactorgnn`` is the command line."""

from refactorgnn.cli import main

main()
