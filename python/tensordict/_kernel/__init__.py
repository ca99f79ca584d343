"""What every other part stands on: keys, indices, settings, the native functions."""
