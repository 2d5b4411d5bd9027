"""From the ledger's outbox to the channels: journal, deliverer, leader election."""
