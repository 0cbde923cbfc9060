"""A project whose jobs are run by the workers of several queues and schedulers."""
