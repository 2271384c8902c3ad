"""A trained run behind HTTP: ``refactorgnn serve``. Needs the extra ``serve``, all but :mod:`.service`."""
