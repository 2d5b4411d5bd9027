"""The callbacks of trainmon_hooks for frameworks. The printed file ends with what follows the mark."""

from __future__ import annotations

import os
import signal
from typing import Any, Callable

from trainmon.job.trainmon_hooks import SIGNALS, Hooks

# ---- callbacks of frameworks; each imports its framework only when it is made ----------------------------------------


def transformers_callback(hooks: Hooks) -> Any:
    """For transformers.Trainer(callbacks=[…]). Its `logging_nan_inf_filter` hides a loss that is not finite."""
    from transformers import TrainerCallback

    class TrainmonCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
        loss, ask = None, ""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
            self.loss = (logs or {}).get("loss", self.loss)

        def on_prediction_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            self.ask = hooks.poll() or self.ask

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> Any:
            ask, self.ask = hooks.step(state.global_step, self.loss) or self.ask, ""
            control.should_save = control.should_save or bool(ask)
            control.should_training_stop = control.should_training_stop or ask == "stop"
            return control

        def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            hooks.saved(state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            hooks.done(state.global_step)

    return TrainmonCallback()


def lightning_callback(hooks: Hooks, folder: str) -> Any:
    """For lightning.Trainer(callbacks=[…]). It saves `folder/step=N.ckpt`."""
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class TrainmonCallback(Callback):  # type: ignore[misc, unused-ignore]
        ask = ""

        def on_validation_batch_end(self, *given: Any, **others: Any) -> None:
            self.ask = hooks.poll() or self.ask

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            ask, self.ask = hooks.step(trainer.global_step, loss) or self.ask, ""
            if ask:
                trainer.save_checkpoint(os.path.join(folder, "step=%d.ckpt" % trainer.global_step))
                hooks.saved(trainer.global_step)
            trainer.should_stop = trainer.should_stop or ask == "stop"

        def on_train_end(self, trainer: Any, module: Any) -> None:
            hooks.done(trainer.global_step)

        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            if hooks.why.startswith("stop"):  # Lightning ends by an exception of its own after SIGTERM
                hooks.done(trainer.global_step)

    return TrainmonCallback()


def accelerate_step(hooks: Hooks, accelerator: Any, folder: str) -> Callable[..., bool]:
    """For a loop with Accelerate: a function to call after each step. It saves `folder/step_N` when it is asked to, and
    returns whether to stop."""

    def after(step: int, loss: Any = None) -> bool:
        ask = hooks.step(step, loss)
        if ask:
            accelerator.save_state(os.path.join(folder, "step_%d" % step))
            hooks.saved(step)
        return ask == "stop"

    return after


def ignore_signals(worker: int = 0) -> None:
    """For DataLoader(worker_init_fn=ignore_signals): Slurm tells its workers, too, and a loop without them cannot save.
    They end with their parent."""
    for name in SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
