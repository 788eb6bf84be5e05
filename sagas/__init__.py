"""The pure saga engine: definitions, state machine, policies, drawing. No clock, no database, no broker."""
