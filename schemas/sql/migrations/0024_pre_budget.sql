-- Budgets: what the tries of a step have spent, what persons have granted, and what the present try has said so far.

-- Amounts by name, as texts so that no digit is lost. No row is rewritten, and older code neither reads nor writes them.
ALTER TABLE milepost.step
    ADD COLUMN spent jsonb,
    ADD COLUMN granted jsonb,
    ADD COLUMN spending jsonb;
ALTER TABLE milepost.request ADD COLUMN budget jsonb;
