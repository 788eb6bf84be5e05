-- name: settings
SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL jit = off; SET LOCAL statement_timeout = '10s';
