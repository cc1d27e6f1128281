"""The queue core: pure decisions on who uses a device. Events come in, actions go out; no I/O and no clock."""
