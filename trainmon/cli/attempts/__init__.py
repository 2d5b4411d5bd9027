"""trainmon-tui attempts (history.py), explain, sql: what each attempt of a run was, why it ended, what it cost."""
