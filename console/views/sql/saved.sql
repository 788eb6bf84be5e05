-- Filters that people have saved, each for himself.

-- name: of_owner
SELECT name, query FROM milepost.saved_filter WHERE owner = $1 AND page = $2 ORDER BY name LIMIT 50;

-- One of that name is replaced; nobody keeps more than 50 for a page.
-- name: save
INSERT INTO milepost.saved_filter (owner, page, name, query)
SELECT $1::text, $2::text, $3::text, $4::text
WHERE (SELECT count(*) FROM milepost.saved_filter AS f WHERE f.owner = $1 AND f.page = $2 AND f.name <> $3) < 50
ON CONFLICT (owner, page, name) DO UPDATE SET query = excluded.query, at = milepost.clock();

-- name: forget
DELETE FROM milepost.saved_filter WHERE owner = $1 AND page = $2 AND name = $3;
