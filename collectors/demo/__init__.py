"""A simulated cluster for `trainmon-tui --demo`.

It has 16 nodes of 8 GPUs, five runs of five trainers on 15 of them, and a shared disk. Its events equal those of real
nodes. Its logs, checkpoints and switch files are real files in a temporary directory: `touch` a kill switch there, and
the run saves, logs it and exits, and so does every array task behind it. Remove the switch, and the next attempt
starts. A simulated Slurm answers the real commands: the dashboard polls it and acts on it as on any other cluster.

Each run has a group in a simulated W&B, with earlier attempts. It answers the dashboard's requests like the real one.

The stories below begin so many seconds after the start; 600 s later they repeat with other victims. `--demo=STORY` puts
one story first, so that it is seen within 10s; the others follow in the same order. `--demo=list` lists them.
A line on the screen tells the newest story.

    story       from  to  first victim  what you see, and how it ends
    hot           15 125  gpu-003/5     87 °C and more, margin 0, hw_thermal, a slow clock; it cools down
    lost          60 170  gpu-014/3     lost, Xid 79, its run dies; the node reboots for 12 s, the run resumes
    hang         105 235  llm-7b        no step, GPUs at 100% and 150 W; the NCCL watchdog kills it, it resumes
    disk         150 270  /fsx          99.6% of bytes and inodes used within 80 s; a user cleans up
    clock        195 305  gpu-008       its clock is 437 s ahead, its data stay fresh; NTP corrects it
    login        240 390  gpu-011       needs a login: press L; L, or the end of the story, reconnects it
    spike        285 365  smol-3b       the loss more than doubles within three steps, and fades
    node         330 420  gpu-006       late, then down with an error, retried; it answers again
    restart      375 450  smol-3b       fails; its next W&B run appears and is followed
    two-active   420 500  moe-1b        a second run in its W&B group, from a desktop; it finishes
    burst        465 471  llm-7b        1,000 lines a second between the step lines
    nan          510 600  video-2b      `lm loss` vanishes from the Megatron line; it goes back to its last checkpoint
    wandb-down   555 625  W&B           W&B is unreachable, the curves stand still; it answers again
"""
