"""The broker over HTTP: routes, what they are sent, and what they answer."""
