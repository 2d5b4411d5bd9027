"""Alerts: rules, the pipeline from a finding to a notification, heartbeats, delivery."""
