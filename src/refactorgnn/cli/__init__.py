"""The command line: ``refactorgnn train | tune | ensemble | evaluate | predict | explain | reproduce | bench | data``.

Every command is a thin layer over :mod:`refactorgnn.api`. Results go to standard output (``--json`` for machines),
progress and errors to standard error. Exit codes: 0 done, 1 nobody takes the output or an experiment of ``reproduce``
or a row of ``bench`` failed, 2 a mistake in the input or a disk that cannot be written, 130 interrupted.
"""

from refactorgnn.cli.app import main

__all__ = ["main"]
