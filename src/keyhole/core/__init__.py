"""What every package builds on: errors, settings, registries, storage, the circumstances of a run; nothing heavy."""
