"""The QPUs that a broker can drive: emulated ones of several kinds, and vendors' machines through QRMI."""
