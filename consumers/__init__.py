"""The long-running roles: orchestrator, workers, compensators, waker, signals; and the application that holds them."""
