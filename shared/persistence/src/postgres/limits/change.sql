WITH changed AS (
    UPDATE harvest.limits SET number = number + 1, document = $3 WHERE generation = $1 AND number = $2 RETURNING generation, number, document
),
audited AS (
    INSERT INTO harvest.limits_audit (generation, number, actor, reason, summary, document)
    SELECT generation, number, $4, $5, $6, document FROM changed
)
SELECT generation, number, document FROM changed
