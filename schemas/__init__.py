"""Contracts: events, messages, ids, errors, states, options and the SQL schema. Imports nothing of ours."""
