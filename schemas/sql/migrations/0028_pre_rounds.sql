-- Which round of a loop a row tells of; '' outside of loops, and in rows that older code writes. Constant defaults, so no
-- row is rewritten.
ALTER TABLE milepost.history ADD COLUMN iteration text NOT NULL DEFAULT '';
ALTER TABLE milepost.reconciliation ADD COLUMN iteration text NOT NULL DEFAULT '';
