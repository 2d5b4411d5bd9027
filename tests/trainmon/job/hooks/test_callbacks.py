"""The callbacks of trainmon_hooks in the frameworks themselves: SIGUSR1 saves and goes on, SIGTERM saves and stops."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.lab.torchrun import frameworks_python
from trainmon import job

pytestmark = pytest.mark.slow  # the frameworks are downloads of many hundred megabytes

MODEL = """
import os, signal, sys
import torch
import trainmon_hooks
folder = sys.argv[1]
hooks = trainmon_hooks.Hooks(status=folder + "/status")

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = torch.nn.Linear(4, 1), 0

    def forward(self, x, labels=None):
        self.calls += 1
        if self.calls in (3, 6):
            os.kill(os.getpid(), signal.SIGUSR1 if self.calls == 3 else signal.SIGTERM)
        return {"loss": (self.layer(x) - 1).square().mean()}

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return {"x": torch.ones(4)}
"""
HF_TRAINER = """
from transformers import Trainer, TrainingArguments
arguments = TrainingArguments(folder, max_steps=50, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
                              per_device_train_batch_size=1, logging_steps=1, remove_unused_columns=False)
trainer = Trainer(Model(), arguments, train_dataset=Data(), callbacks=[trainmon_hooks.transformers_callback(hooks)])
trainer.train()
assert trainer.state.global_step == 6
"""
LIGHTNING = """
import lightning

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def training_step(self, batch):
        return self.model(batch["x"])["loss"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

trainer = lightning.Trainer(max_steps=50, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, callbacks=[trainmon_hooks.lightning_callback(hooks, folder)])
trainer.fit(Module(), torch.utils.data.DataLoader(Data()))
assert trainer.global_step == 6
"""
ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = Model()
model, loader, optimizer = accelerator.prepare(
    model, torch.utils.data.DataLoader(Data()), torch.optim.SGD(model.parameters(), 0.01))
after_step = trainmon_hooks.accelerate_step(hooks, accelerator, folder)
for step, batch in enumerate(loader, 1):
    loss = model(batch["x"])["loss"]
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    if after_step(step, loss):
        break
hooks.done(step)
assert step == 6
"""
FRAMEWORKS = {
    "HF Trainer": (HF_TRAINER, ["checkpoint-3", "checkpoint-6"]),
    "Lightning": (LIGHTNING, ["step=3.ckpt", "step=6.ckpt"]),
    "Accelerate": (ACCELERATE, ["step_3", "step_6"]),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_saves_when_it_is_asked_and_stops(name: str, tmp_path: Path) -> None:
    script, expected = FRAMEWORKS[name]
    (tmp_path / "trainmon_hooks.py").write_text(job.hooks_module())
    (tmp_path / "train.py").write_text(MODEL + script)
    environ = {**os.environ, "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    argv = [str(frameworks_python()), str(tmp_path / "train.py"), str(tmp_path)]
    done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(("checkpoint-", "step")))
    assert found == expected
    status = json.loads((tmp_path / "status").read_text())
    assert (status["step"], status["last_save"]["step"]) == (6, 6)
    assert status["ended"]["why"] == "stop: SIGTERM on rank 0"
