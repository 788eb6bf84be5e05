"""What pages and API read: models and their SQL, within what the reader may see. No HTML, no HTTP."""
