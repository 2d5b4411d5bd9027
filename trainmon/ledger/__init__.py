"""The local SQLite database: actions, attempts, alerts, outbox, lease."""
