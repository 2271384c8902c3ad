"""The paper's tables, measured again: ``refactorgnn reproduce TABLE``.

A table (:mod:`~refactorgnn.reproduce.tables`) names rows and datasets, a recipe (:mod:`~refactorgnn.reproduce.recipe`)
the settings of each row, and both together experiments (:mod:`~refactorgnn.reproduce.experiments`). Each experiment
becomes a record on disk (:mod:`~refactorgnn.reproduce.runner`), and tables and pages are made of the records alone
(:mod:`~refactorgnn.reproduce.pages`).
"""
