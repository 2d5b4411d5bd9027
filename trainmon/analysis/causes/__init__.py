"""Why an attempt ended: from its log, its exit status, the scheduler and its nodes to one cause. Pure."""
