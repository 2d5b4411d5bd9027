"""The local SQLite database: actions, alerts, outbox, lease."""
