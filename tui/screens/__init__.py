"""The screens: main, help, log, charts, and details of one thing."""
