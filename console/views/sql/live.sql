-- Whether something changed, told without reading what.

-- name: of_run
SELECT r.version || ' ' || r.state || ' ' || (SELECT count(*) || ' ' || count(q.answered_at) || ' ' || count(*) FILTER (WHERE q.state = 'OPEN')
                              FROM milepost.request AS q WHERE q.run_id = r.id)
FROM milepost.run AS r WHERE r.id = $1;

-- PostgreSQL counts what is written to a table; who wrote has told it within a second or so. $2: seconds after which it
-- differs in any case, NULL for never.
-- name: of_tables
SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) || ' '
       || coalesce(floor(extract(epoch FROM (SELECT milepost.clock())) / $2::int), 0)
FROM pg_stat_user_tables WHERE schemaname = 'milepost' AND relname = ANY ($1);
