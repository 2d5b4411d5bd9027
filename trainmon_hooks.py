"""`import trainmon_hooks` where trainmon-tui is installed. Elsewhere: `trainmon-tui hooks > trainmon_hooks.py`."""

from trainmon.job.hooks_callbacks import accelerate_step, ignore_signals, lightning_callback, transformers_callback
from trainmon.job.trainmon_hooks import Hooks

__all__ = ["Hooks", "accelerate_step", "ignore_signals", "lightning_callback", "transformers_callback"]
