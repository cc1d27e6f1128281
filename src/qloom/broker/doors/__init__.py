"""Vendors' protocols in front of the broker, so that unmodified vendors' clients reach the site's devices."""
