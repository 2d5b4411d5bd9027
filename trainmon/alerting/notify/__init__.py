"""How people are told: messages, channels, and the threads that send."""
