"""What the examples share: processes that are started, killed and watched, servers, and calls that go wrong."""
