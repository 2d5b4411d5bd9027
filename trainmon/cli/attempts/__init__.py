"""trainmon-tui attempts, sql: what each attempt of a run was, why it ended and what it cost."""
