"""`qloom dashboard`: runs as they go on, in a browser. One page, server-sent events, nothing from elsewhere."""
