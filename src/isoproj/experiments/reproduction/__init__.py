"""The paper's tables and figures again, with numbers, verdicts and what lies beyond."""
