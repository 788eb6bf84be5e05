-- Runs and steps change several times each and are kept for months. By default a table is vacuumed when a fifth of it is
-- dead, so that what is dead grows with what is kept; a fixed number keeps it flat.
ALTER TABLE milepost.run SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
ALTER TABLE milepost.step SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
