"""The paper's tables and figures, measured again."""
