-- (to be written)
SELECT;
