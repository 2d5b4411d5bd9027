"""A living cluster that does not exist: `trainmon-tui --demo`. Started only when it is asked for.

16 nodes of 8 GPUs, five runs of five trainers on 15 of them, and a disk that they share. Their events are those of
real nodes, their logs, checkpoints and switch files are real files in a temporary directory: `touch` a kill switch
there and the run saves, says so and exits, and so does every element that waits behind it; remove it and the next
attempt begins. A Slurm of theirs answers the real commands: the dashboard polls it and acts on it as on any other.

Each run has a group in a W&B of theirs, with attempts from before: it answers what the dashboard asks of the real one.

What goes wrong, in seconds after the start; 600 s later it begins again with other victims. `--demo=STORY` puts one
story first, and the others after it in the same order.

    story       from  to  first victim  what is seen, and how it ends
    hot           15 125  gpu-003/5     87 °C and more, margin 0, hw_thermal, a slow clock; it cools down
    lost          60 170  gpu-014/3     lost, Xid 79, its run dies; the node reboots for 12 s, the run resumes
    hang         105 235  llm-7b        no step, GPUs at 100 % and 150 W; the NCCL watchdog ends it, it resumes
    disk         150 270  /fsx          99.6 % of bytes and inodes used within 80 s; somebody clears up
    clock        195 305  gpu-008       its clock is 437 s ahead, its data stay fresh; its clock is set
    login        240 390  gpu-011       held: press L to log in; L, or the end of the story, brings it back
    spike        285 365  smol-3b       the loss more than doubles within three steps, and fades
    node         330 420  gpu-006       late, then down with a sentence, redialled; it answers again
    restart      375 450  smol-3b       fails; W&B waits for the restart; the next run is taken up
    two-active   420 500  moe-1b        a second run in its W&B group, from a desktop; it finishes
    burst        465 471  llm-7b        1,000 lines a second between the step lines
    nan          510 600  video-2b      `lm loss` vanishes from the Megatron line; it goes back to its last checkpoint
    wandb-down   555 625  W&B           W&B is unreachable, the curves stand still; it answers again
"""

from collectors.demo.collector import Demo
from collectors.demo.model.inventory import RUNS
from collectors.demo.stories import STORIES

__all__ = ["RUNS", "STORIES", "Demo"]
