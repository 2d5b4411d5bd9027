"""From the ledger's outbox to the channels: journal, dispatcher, workers, leader election."""
