"""The HTTP console: who asks, the API, and the pages."""
