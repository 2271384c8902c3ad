"""Rivals of ReFactor GNNs: systems of other papers behind the same contract."""
