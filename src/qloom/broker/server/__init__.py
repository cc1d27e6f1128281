"""The broker's front door: sockets, connections and requests, up to where the API answers."""
